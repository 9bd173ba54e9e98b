#include "server/model_folder.h"

#include <algorithm>
#include <system_error>

#include "http/message.h"

namespace bl::server {
namespace {

namespace fs = std::filesystem;

constexpr int kMostDepth = 4;
constexpr std::size_t kMostItems = 10'000;
constexpr std::chrono::seconds kFresh{1};

std::string_view without_latest(std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.size() > kLatest.size() &&
      http::equal_without_case(name.substr(name.size() - kLatest.size()), kLatest)) {
    name.remove_suffix(kLatest.size());
  }
  return name;
}

// Later shards of a split file: "…-00002-of-00003".
bool is_later_shard(const std::string& stem) {
  const std::size_t of = stem.rfind("-of-");
  if (of == std::string::npos || of < 6) return false;
  const std::string number = stem.substr(of - 5, 5);
  return stem[of - 6] == '-' && number != "00001" &&
         std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_item_folder(const fs::path& path, FolderKind kind) {
  std::error_code none;
  switch (kind) {
    case FolderKind::kModels:
      return fs::is_regular_file(path / "config.json", none);
    case FolderKind::kAdapters:
      return fs::is_regular_file(path / "adapter_config.json", none);
    case FolderKind::kTemplates:
    case FolderKind::kPresets:
      break;
  }
  return false;
}

bool is_item_file(const fs::path& path, FolderKind kind) {
  const std::string extension = path.extension().string();
  switch (kind) {
    case FolderKind::kModels:
      return extension == ".gguf" && !is_later_shard(path.stem().string());
    case FolderKind::kTemplates:
      return extension == ".jinja" || extension == ".jinja2";
    case FolderKind::kPresets:
      return extension == ".json";
    case FolderKind::kAdapters:
      break;
  }
  return false;
}

class Scan {
 public:
  Scan(const fs::path& root, FolderKind kind) : kind_(kind) {
    std::error_code failed;
    root_ = fs::canonical(root, failed);
    if (!failed) look_into(root_, {}, 0);
    std::stable_sort(items_.begin(), items_.end(),
                     [](const auto& a, const auto& b) { return a.name < b.name; });
    items_.erase(std::unique(items_.begin(), items_.end(),
                             [](const auto& a, const auto& b) { return a.name == b.name; }),
                 items_.end());
  }
  std::vector<NamedFolder::Item> take() { return std::move(items_); }

 private:
  // Whether the real place of a path is inside the root.
  bool is_inside(const fs::path& path) const {
    std::error_code failed;
    const fs::path real = fs::canonical(path, failed);
    if (failed) return false;
    const auto [end, at] = std::mismatch(root_.begin(), root_.end(), real.begin(), real.end());
    return end == root_.end();
  }

  void look_into(const fs::path& folder, const std::string& prefix, int depth) {
    std::error_code failed;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end;
         at.increment(failed)) {
      const std::string name = at->path().filename().string();
      if (name.starts_with('.') || items_.size() >= kMostItems || !is_inside(at->path())) continue;
      std::error_code none;
      if (at->is_directory(none)) {
        if (is_item_folder(at->path(), kind_)) {
          items_.push_back({prefix + name, at->path()});
        } else if (depth + 1 < kMostDepth) {
          look_into(at->path(), prefix + name + "/", depth + 1);
        }
      } else if (is_item_file(at->path(), kind_)) {
        items_.push_back({prefix + at->path().stem().string(), at->path()});
      }
    }
  }

  fs::path root_;
  FolderKind kind_;
  std::vector<NamedFolder::Item> items_;
};

}  // namespace

bool same_model_name(std::string_view a, std::string_view b) {
  return http::equal_without_case(without_latest(a), without_latest(b));
}

std::vector<NamedFolder::Item> NamedFolder::scan() const {
  if (root_.empty()) return {};
  return Scan(root_, kind_).take();
}

std::vector<NamedFolder::Item> NamedFolder::list() const {
  const std::scoped_lock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (scanned_ == std::chrono::steady_clock::time_point{} || now - scanned_ > kFresh) {
    items_ = scan();
    scanned_ = now;
  }
  return items_;
}

std::optional<NamedFolder::Item> NamedFolder::find(const std::string& name) const {
  std::optional<Item> alike;
  for (Item& item : list()) {
    if (item.name == name) return std::move(item);
    if (!alike && same_model_name(item.name, name)) alike = std::move(item);
  }
  return alike;
}

std::int64_t modified_at(const fs::path& path) {
  std::error_code unknown;
  const auto time = fs::last_write_time(path, unknown);
  if (unknown) return 0;
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::file_clock::to_sys(time).time_since_epoch())
      .count();
}

std::uint64_t bytes_on_disk(const fs::path& path) {
  std::error_code none;
  if (fs::is_regular_file(path, none)) return fs::file_size(path, none);
  std::uint64_t bytes = 0;
  for (fs::directory_iterator at(path, none), end; !none && at != end; at.increment(none)) {
    std::error_code unread;
    if (at->is_regular_file(unread)) bytes += at->file_size(unread);
  }
  return bytes;
}

}  // namespace bl::server
