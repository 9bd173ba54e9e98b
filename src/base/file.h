#pragma once
// Whole-file reading and writing that leaves nothing half-written.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace bl {

// Reads a whole regular file. Throws kNotFound, kIo, or kInvalidFile when it is larger than
// `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes = 1u << 30);

// A file that appears under its name only when it is complete: bytes go to `.NAME.tmp-PID` beside
// it, commit() flushes, syncs and renames. Destroyed before commit(), it removes what it wrote.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::FILE* file_ = nullptr;
};

// Same for a small text file.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace bl
