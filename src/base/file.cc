#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace bl {

std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open {}: {}",
         path.string(), std::strerror(errno));
  }
  struct stat status {};
  if (fstat(fileno(file), &status) == 0 && S_ISDIR(status.st_mode)) {
    std::fclose(file);
    fail(ErrorCode::kInvalidFile, "{} is a folder, but a file was expected", path.string());
  }
  std::string text;
  char buffer[1 << 16];
  std::size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, file)) > 0) {
    text.append(buffer, got);
    if (text.size() > max_bytes) {
      std::fclose(file);
      fail(ErrorCode::kInvalidFile, "{} is larger than the {} bytes that are accepted here",
           path.string(), max_bytes);
    }
  }
  const bool broken = std::ferror(file) != 0;
  std::fclose(file);
  if (broken) fail(ErrorCode::kIo, "cannot read {}", path.string());
  return text;
}

namespace {
constexpr std::string_view kTemporary = ".tmp-";  // between the name and the process
}

std::filesystem::path unfinished_path(const std::filesystem::path& path) {
  return path.parent_path() /
         fmt::format(".{}{}{}", path.filename().string(), kTemporary, static_cast<long>(getpid()));
}

bool is_unfinished_file(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') && name.find(kTemporary) != name.npos;
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  // The rename in commit() would replace a device such as /dev/null by a plain file.
  struct stat status {};
  if (stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    fail(ErrorCode::kInvalidArgument, "cannot write {}: it is {}, but a file was expected",
         path_.string(), S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
  }
  temporary_ = unfinished_path(path_);
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (file_ == nullptr) {
    fail(ErrorCode::kIo, "cannot write {}: {}", path_.string(), std::strerror(errno));
  }
}

AtomicFile::~AtomicFile() {
  if (file_ != nullptr) {
    std::fclose(file_);
    unlink(temporary_.c_str());
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    fail(ErrorCode::kIo, "cannot write {}: {}", path_.string(), std::strerror(errno));
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  const bool flushed = std::fflush(file_) == 0 && fsync(fileno(file_)) == 0;
  const int flush_error = errno;
  if (!flushed) {
    fail(ErrorCode::kIo, "cannot write {}: {}", path_.string(), std::strerror(flush_error));
  }
  std::fclose(std::exchange(file_, nullptr));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int rename_error = errno;
    unlink(temporary_.c_str());
    fail(ErrorCode::kIo, "cannot rename to {}: {}", path_.string(), std::strerror(rename_error));
  }
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace bl
