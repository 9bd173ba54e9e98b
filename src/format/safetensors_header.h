#pragma once
// The header of a safetensors file. The file is 8 bytes of header length, the header as JSON, then
// the bytes of all tensors.
//
// Goals: everything that a hostile file could say is checked here, once, so that whoever holds a
// SafetensorsHeader may index the file's bytes by it. Only the header is read, never tensor data.
// Non-goals: which tensors make sense together (see exl2.h and gptq.h).

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace bl {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string_view dtype_name;  // as in the file: "F16", "F8_E4M3"
  std::optional<DType> dtype;   // empty if the format knows the dtype and bitloom does not
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // in bytes from the start of the file
  std::uint64_t end = 0;
  std::uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // sorted by name; no name occurs twice
  std::map<std::string, std::string> metadata;  // __metadata__
};

// Parses and checks the header of a file whose bytes are `file`; `what` names it in errors. Throws
// kInvalidFile unless all of this holds: the length is at most kMaxSafetensorsHeader and the header
// lies inside the file; the JSON is an object of tensors, each with one dtype, shape and
// data_offsets; every range has exactly the bytes of dtype × shape; the ranges follow each other
// without gap or overlap and cover the file.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, std::string_view what);

}  // namespace bl
