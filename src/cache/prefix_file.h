#pragma once
// Files that hold the pages of the beginning of a text (docs/formats/prefix.md). Every byte is
// checked before it is used. This code knows nothing of pools, nor of what is inside a page.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cache/page_kind.h"

namespace bl {

// The beginning of a text, in whole pages.
struct PrefixText {
  PageKind kind;
  std::string salt;
  std::vector<std::int32_t> ids;  // their number is a multiple of kPageSlots
  std::int64_t pages() const { return static_cast<std::int64_t>(ids.size()) / kPageSlots; }
};

// Writes a file that appears under its name only when it is complete.
class PrefixWriter {
 public:
  // Writes the header. Throws kIo, and kInvalidArgument if the text exceeds the limits of the
  // format.
  PrefixWriter(const std::filesystem::path& path, const PrefixText& text);
  // Appends the next page. Throws kIo, for instance if the disk is full.
  void write_page(std::span<const std::byte> page);
  // Makes the file visible. Call it once all pages are written.
  void commit();
  std::uint64_t bytes() const { return bytes_; }  // bytes written so far

 private:
  AtomicFile file_;
  Hash128 header_hash_;
  std::uint64_t page_bytes_;
  std::int64_t pages_;
  std::int64_t written_ = 0;
  std::uint64_t bytes_ = 0;
};

class PrefixReader {
 public:
  // Opens the file, and checks its header and its size. Throws kNotFound, kIo, kInvalidFile, or
  // kUnsupported for another version of the format.
  explicit PrefixReader(const std::filesystem::path& path);
  const PrefixText& text() const { return text_; }
  // Throws kInvalidArgument, saying what differs, if the file's pages are not of kind `own`.
  void check_kind(const PageKind& own) const;
  // Reads the next page, text().kind.page_bytes bytes. Throws kInvalidFile if it is damaged.
  void read_page(std::span<std::byte> page);
  // Skips the next pages.
  void skip(std::int64_t pages);
  std::uint64_t bytes() const { return size_; }

 private:
  struct Descriptor {
    explicit Descriptor(int number) : fd(number) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor();
    int fd;
  };
  void read_header();
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const;

  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t size_ = 0;
  std::uint64_t header_bytes_ = 0;
  Hash128 header_hash_;
  PrefixText text_;
  std::int64_t next_ = 0;
};

// The hash that follows each page in a file.
Hash128 page_hash(const Hash128& header, std::int64_t index, std::span<const std::byte> page);

}  // namespace bl
