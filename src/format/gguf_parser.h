#pragma once
// Turns the bytes of a GGUF file into a GgufFile, and is used only by that class.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "format/gguf_file.h"

namespace bl {

// The bytes of one value of a fixed-size type; 0 for strings and arrays.
std::size_t gguf_value_bytes(GgufValueType type);

// Text of a file in a form that is safe in a message: other than printable ASCII becomes '?', cut
// to 80 bytes.
std::string shown_gguf_text(std::string_view text);

class GgufParser {
 public:
  GgufParser(GgufFile& file, std::span<const std::byte> bytes) : file_(file), bytes_(bytes) {}
  // Fills in the file. Throws kInvalidFile or kUnsupported, as GgufFile::open() says.
  void parse();

 private:
  struct Entry {  // a tensor whose offset has not been checked yet
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  template <class T>
  T read(std::string_view what);
  std::string_view read_text(std::string_view what);
  GgufValueType read_value_type(std::string_view key);
  GgufValue read_value(std::string_view key);
  GgufValue::Array read_array(std::string_view key);
  void read_metadata();
  Entry read_tensor();
  Shape read_shape(const std::string& tensor, GgufTensor& out, std::uint64_t& bytes);
  void place_tensors(std::span<const Entry> entries);
  std::uint64_t alignment() const;
  void need(std::uint64_t bytes, std::string_view what) const;
  std::uint64_t left() const { return bytes_.size() - at_; }

  GgufFile& file_;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

}  // namespace bl
