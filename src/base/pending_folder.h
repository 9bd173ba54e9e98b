#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

namespace bl {

// The path made absolute and without a trailing slash, so that it has a parent and a name. A link
// to a folder is followed, so that what is renamed to it lands where it points to.
std::filesystem::path normalized_folder(const std::filesystem::path& folder);

// Throws kInvalidArgument where a model folder may not be written to `target`: it is a file, or in
// a folder that cannot be written; it is one of `sources`, which are inputs; or it is not empty and
// `force` is not given. With `force` a folder that is not empty may be replaced if it holds one
// model (a config.json and nothing but plain files, none of them in `sources`).
void check_new_folder(const std::filesystem::path& target, bool force,
                      std::span<const std::filesystem::path> sources);

// Throws kIo where fewer than `bytes` bytes are free on the file system of `folder`.
void check_space(const std::filesystem::path& folder, std::uint64_t bytes);

// A folder that is filled under a temporary name beside `target`, which must be normalized, and
// then renamed to it by put_in_place(). What was at `target` stays until then; it is replaced if
// check_new_folder(target, force) lets it, which put_in_place() asks again, since hours may lie
// between. If it is destroyed before that, the new folder is removed. Throws kIo.
class PendingFolder {
 public:
  PendingFolder(const std::filesystem::path& target, bool force);
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;
  ~PendingFolder();

  const std::filesystem::path& path() const { return path_; }
  void put_in_place();

 private:
  std::filesystem::path target_;
  bool force_;
  std::filesystem::path path_;
  std::filesystem::path old_;
};

}  // namespace bl
