#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

namespace bl {

// Absolute, without a trailing slash, so that siblings and names are well defined.
std::filesystem::path normalized_folder(const std::filesystem::path& folder);

// Throws kInvalidArgument where a folder may not be written: something is there, and either `force`
// is not given or it is no model's (no config.json, or more than plain files), or it is or holds
// one of `sources`, which are read.
void check_new_folder(const std::filesystem::path& target, bool force,
                      std::span<const std::filesystem::path> sources);

// Throws kIo where fewer than `bytes` are free.
void check_space(const std::filesystem::path& folder, std::uint64_t bytes);

// A folder being filled beside its final place, which is normalized; it goes away unless it is put
// there. What was at that place stays until then.
class PendingFolder {
 public:
  explicit PendingFolder(const std::filesystem::path& target);
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;
  ~PendingFolder();

  const std::filesystem::path& path() const { return path_; }
  void put_in_place();

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
  std::filesystem::path old_;
};

}  // namespace bl
