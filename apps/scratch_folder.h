#pragma once
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.h"

namespace bl {

// A path for a folder that nobody else uses, in `in` or, where that is empty, in the system's
// temporary folder. Whatever is there in the end is removed.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& in = {})
      : path_((in.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(in)) /
              fmt::format("bitloom-scratch-{}", getpid())) {}
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace bl
