#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/safetensors_header.h"
#include "format/tensor_source.h"

namespace bl {

// One safetensors file, mapped. Opening reads the header only; read() gives views into the mapping,
// or an aligned copy of a tensor that lies at an odd place.
//
// A tensor with more than four dimensions shows its trailing ones folded into the fourth; entries()
// keeps the shape as it is.
class SafetensorsFile : public TensorSource {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  // A file that is in memory already; `what` names it in errors.
  SafetensorsFile(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                  std::string what);

  // Throws kUnsupported for a tensor whose dtype the format knows and this program does not
  // (F8_E4M3, BOOL, …): such tensors are in no list of names(), yet whoever wants one learns why.
  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  HostArray read(std::string_view name) const override;
  void done_with(std::string_view name) const override;

  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const std::string& what() const { return what_; }

 private:
  class Mapping;
  explicit SafetensorsFile(std::shared_ptr<const Mapping> mapping);
  const SafetensorsEntry* entry(std::string_view name) const;

  std::string what_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const Mapping> mapping_;  // null for a file in memory
  std::span<const std::byte> bytes_;
  SafetensorsHeader header_;
  std::vector<TensorInfo> infos_;  // parallel to header_.entries
};

}  // namespace bl
