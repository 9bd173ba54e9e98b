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

// One safetensors file, mapped into memory. Opening it reads only the header; read() returns views
// into the mapping, or an aligned copy of a tensor that is not aligned in the file.
//
// The shape of a tensor with more than four dimensions is shown with the fourth and later ones
// multiplied into one; entries() keeps the true shape.
class SafetensorsFile : public TensorSource {
 public:
  // Throws kNotFound or kIo where the file cannot be read, kInvalidFile where it breaks the format.
  explicit SafetensorsFile(const std::filesystem::path& path);
  // A file whose bytes are in memory already and kept alive by `owner`; `what` names it in errors.
  SafetensorsFile(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                  std::string what);

  // Throws kUnsupported for a tensor whose dtype the format knows but bitloom does not (F8_E4M3,
  // BOOL, …). names() leaves such tensors out, but whoever asks for one learns why.
  const TensorInfo* find(std::string_view name) const override;
  std::vector<std::string> names() const override;
  std::vector<std::string> refused_names() const override;
  HostArray read(std::string_view name) const override;
  void done_with(std::string_view name) const override;

  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  // The bytes of one of this file's entries.
  std::span<const std::byte> bytes_of(const SafetensorsEntry& entry) const {
    return bytes_.subspan(entry.begin, entry.bytes());
  }
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
