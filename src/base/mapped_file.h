#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace bl {

// A whole file mapped read-only. Move-only; the bytes live as long as the object.
class MappedFile {
 public:
  // Throws kNotFound or kIo, and kInvalidFile for anything but a regular file. An empty file gives
  // an empty span.
  explicit MappedFile(std::filesystem::path path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  // Tells the kernel that bytes [offset, offset + size) are no longer needed: the pages of a tensor
  // that has been repacked should not count as resident.
  void done_with(std::size_t offset, std::size_t size) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace bl
