#include "base/pending_folder.h"

#include <unistd.h>

#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace bl {

namespace fs = std::filesystem;

namespace {

void move_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    fail(ErrorCode::kIo, "cannot rename {} to {}: {}", from.string(), to.string(), error.message());
  }
}

bool is_source(const fs::path& path, std::span<const fs::path> sources) {
  for (const fs::path& source : sources) {
    std::error_code error;
    if (fs::equivalent(path, source, error)) return true;
  }
  return false;
}

// Throws where the nearest folder above `target` that exists cannot be written.
void check_parent(const fs::path& target) {
  fs::path above = fs::absolute(target).parent_path();
  std::error_code error;
  while (!fs::exists(above, error) && above.has_relative_path()) above = above.parent_path();
  if (!fs::is_directory(above, error) || access(above.c_str(), W_OK | X_OK) != 0) {
    fail(ErrorCode::kInvalidArgument, "{} cannot be written, because {} is {}", target.string(),
         above.string(),
         fs::is_directory(above, error) ? "a folder that may not be changed" : "no folder");
  }
}

}  // namespace

fs::path normalized_folder(const fs::path& folder) {
  fs::path path = fs::absolute(folder).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  std::error_code error;
  if (fs::is_symlink(path, error) && fs::is_directory(path, error)) return fs::canonical(path);
  return path;
}

void check_new_folder(const fs::path& target, bool force, std::span<const fs::path> sources) {
  check_parent(target);
  if (!fs::exists(target)) return;
  if (!fs::is_directory(target)) {
    fail(ErrorCode::kInvalidArgument, "{} exists and is not a folder; give another path",
         target.string());
  }
  if (is_source(target, sources)) {
    fail(ErrorCode::kInvalidArgument,
         "{} is an input and cannot be the output too; give another folder", target.string());
  }
  if (fs::is_empty(target)) return;
  if (!force) {
    fail(ErrorCode::kInvalidArgument,
         "the folder {} is not empty; give another one, or --force to replace it", target.string());
  }
  // --force replaces the whole folder, so it must hold one model and nothing else.
  if (!fs::is_regular_file(target / "config.json")) {
    fail(ErrorCode::kInvalidArgument,
         "{} is not empty and has no config.json; --force replaces model folders only",
         target.string());
  }
  for (const auto& entry : fs::directory_iterator(target)) {
    if (!entry.is_regular_file() || is_source(entry.path(), sources)) {
      fail(ErrorCode::kInvalidArgument,
           "{} holds {}, which is not part of a model; --force replaces model folders only",
           target.string(), entry.path().filename().string());
    }
  }
}

void check_space(const fs::path& folder, std::uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= bytes) return;
  fail(ErrorCode::kIo,
       "{}: {} bytes are needed, but only {} are free; make room or choose another place",
       folder.string(), bytes, space.available);
}

PendingFolder::PendingFolder(const fs::path& target, bool force) : target_(target), force_(force) {
  const std::string name = target.filename().string();
  path_ = unfinished_path(target);
  old_ = target.parent_path() / fmt::format(".{}.old-{}", name, getpid());
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  fs::remove_all(path_, error);
  if (!fs::create_directory(path_, error)) {
    fail(ErrorCode::kIo, "cannot create the folder {}: {}", path_.string(), error.message());
  }
}

PendingFolder::~PendingFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void PendingFolder::put_in_place() {
  check_new_folder(target_, force_, {});
  std::error_code error;
  const bool replaces = fs::exists(target_);
  if (replaces) move_folder(target_, old_);
  fs::rename(path_, target_, error);
  if (error) {
    std::error_code ignored;
    if (replaces) fs::rename(old_, target_, ignored);
    fail(ErrorCode::kIo, "cannot rename {} to {}: {}", path_.string(), target_.string(),
         error.message());
  }
  if (replaces) fs::remove_all(old_, error);
}

}  // namespace bl
