#pragma once
// The pages of a text's beginning as a file: docs/formats/prefix.md. Every byte of one is checked
// before it is used. Knows nothing of pools; what is inside a page is nobody's business here.

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

// A beginning of a text: whole pages of it.
struct PrefixText {
  PageKind kind;
  std::string salt;
  std::vector<std::int32_t> ids;  // a multiple of kPageSlots
  std::int64_t pages() const { return static_cast<std::int64_t>(ids.size()) / kPageSlots; }
};

// Writes a file that appears when it is complete, or not at all.
class PrefixWriter {
 public:
  // Throws kIo; kInvalidArgument for a text that no file can hold.
  PrefixWriter(const std::filesystem::path& path, const PrefixText& text);
  // The next page. Throws kIo, such as for a disk that is full.
  void write_page(std::span<const std::byte> page);
  // To be called when all pages are written.
  void commit();
  std::uint64_t bytes() const { return bytes_; }  // written

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
  // Reads and checks the header, and that the file has the size it says. Throws kNotFound, kIo,
  // kInvalidFile, kUnsupported (a later version).
  explicit PrefixReader(const std::filesystem::path& path);
  const PrefixText& text() const { return text_; }
  // Throws kInvalidArgument that says what of the file's pages is not as here.
  void check_kind(const PageKind& own) const;
  // The next page, text().kind.page_bytes of them. Throws kInvalidFile when it is damaged.
  void read_page(std::span<std::byte> page);
  // Leaves out the next so many pages.
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

// What stands in a file behind a page.
Hash128 page_hash(const Hash128& header, std::int64_t index, std::span<const std::byte> page);

}  // namespace bl
