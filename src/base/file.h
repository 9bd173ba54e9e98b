#pragma once
// Reading of whole files, and writing that never leaves a half-written file.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace bl {

// Reads a whole regular file. Throws kNotFound or kIo where it cannot be read, and kInvalidFile
// where it is a folder or larger than `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes = 1u << 30);

// A file that appears under its name only when it is complete: bytes go to `.NAME.tmp-PID` beside
// it; commit() flushes, syncs and renames it. If it is destroyed before commit(), what was written
// is removed. Throws kIo where writing fails, kInvalidArgument where `path` is a folder, device or
// pipe.
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

// Where this process writes what gets the name `path` when it is complete: `.NAME.tmp-PID` beside
// it.
std::filesystem::path unfinished_path(const std::filesystem::path& path);
// Whether this is such a name, of any process.
bool is_unfinished_file(const std::filesystem::path& path);

// Writes a text file through an AtomicFile.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace bl
