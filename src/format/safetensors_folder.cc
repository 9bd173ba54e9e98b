#include "format/safetensors_folder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "format/quoted_name.h"
#include "format/safetensors_index.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

bool has_exl2(const SafetensorsFile& file) {
  const auto& entries = file.entries();
  return std::any_of(entries.begin(), entries.end(), [](const SafetensorsEntry& entry) {
    return entry.name.ends_with(".q_weight");
  });
}

bool has_exl2(const std::vector<std::unique_ptr<SafetensorsFile>>& files) {
  return std::any_of(files.begin(), files.end(), [](const auto& file) { return has_exl2(*file); });
}

constexpr const char* kWholeFile = "model.safetensors";  // a model that is not sharded

struct Listing {
  bool has(std::string_view name) const {
    return std::any_of(files.begin(), files.end(),
                       [&](const fs::path& path) { return path.filename() == name; });
  }

  std::vector<fs::path> files;  // *.safetensors, sorted
  std::vector<fs::path> indexes;
  bool has_pickle = false;
};

Listing list_folder(const fs::path& folder) {
  Listing listing;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(".")) continue;
    if (name.ends_with(".safetensors")) listing.files.push_back(it->path());
    if (name.ends_with(".safetensors.index.json")) listing.indexes.push_back(it->path());
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) {
      listing.has_pickle = true;
    }
  }
  if (error) {
    fail(ErrorCode::kIo, "cannot list {}: {}", folder.string(), error.message());
  }
  std::sort(listing.files.begin(), listing.files.end());
  std::sort(listing.indexes.begin(), listing.indexes.end());
  return listing;
}

// The index that says which files count; nullopt if none does.
std::optional<SafetensorsIndex> index_in_force(const Listing& listing) {
  const auto standard = std::find_if(
      listing.indexes.begin(), listing.indexes.end(),
      [](const fs::path& path) { return path.filename() == "model.safetensors.index.json"; });
  std::optional<SafetensorsIndex> index;
  if (standard != listing.indexes.end()) {
    index = read_safetensors_index(*standard);
  } else if (listing.indexes.size() == 1) {
    // Two indexes, for two variants of the weights, do not say which variant is meant.
    index = read_safetensors_index(listing.indexes[0]);
  }
  const bool names_whole = index && index->mistake.empty() && index->shards.contains(kWholeFile);
  if (listing.has(kWholeFile) && !names_whole) return std::nullopt;
  return index;
}

const SafetensorsEntry& entry_of(const SafetensorsFile& file, std::string_view name) {
  const auto& entries = file.entries();
  return *std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const SafetensorsEntry& entry, std::string_view wanted) { return entry.name < wanted; });
}

// Whether two files that both have this tensor hold the same bytes for it.
bool same_tensor(const SafetensorsFile& a, const SafetensorsFile& b, std::string_view name) {
  const SafetensorsEntry& first = entry_of(a, name);
  const SafetensorsEntry& second = entry_of(b, name);
  return first.dtype_name == second.dtype_name && first.shape == second.shape &&
         std::ranges::equal(a.bytes_of(first), b.bytes_of(second));
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    open_folder(path);
  } else {
    files_.push_back(std::make_unique<SafetensorsFile>(path));
  }
  index_names();
}

void SafetensorsFolder::open_folder(const fs::path& folder) {
  const Listing listing = list_folder(folder);
  if (listing.files.empty()) {
    fail(ErrorCode::kNotFound, "{} holds no .safetensors file{}", folder.string(),
         listing.has_pickle ? "; pickled weights (.bin, .pt) can run code and are not read; "
                              "convert them to safetensors"
                            : "");
  }
  const std::optional<SafetensorsIndex> index = index_in_force(listing);
  const bool whole = listing.has(kWholeFile);
  std::vector<fs::path> others;
  for (const fs::path& path : listing.files) {
    const std::string name = path.filename().string();
    const bool counts = index ? index->shards.contains(name) : !whole || name == kWholeFile;
    if (counts) {
      files_.push_back(std::make_unique<SafetensorsFile>(path));
    } else {
      others.push_back(path);
    }
  }
  const bool stale = files_.empty();
  if (stale || has_exl2(files_)) {
    for (const fs::path& path : others) files_.push_back(std::make_unique<SafetensorsFile>(path));
  }
  if (!index || has_exl2(files_)) return;
  if (!index->mistake.empty()) {
    fail(ErrorCode::kInvalidFile,
         "{} (fetch it again; without it, all .safetensors files of the folder count)",
         index->mistake);
  }
  if (stale) {
    log_warning("{} names none of the .safetensors files beside it, and is ignored",
                index->path.string());
    return;
  }
  for (const auto& [tensor, shard] : index->shard_of) {
    if (!listing.has(shard)) absent_[tensor] = {shard, index->path.string()};
  }
}

void SafetensorsFolder::index_names() {
  for (const auto& file : files_) {
    for (const SafetensorsEntry& entry : file->entries())
      places_.push_back({entry.name, file.get()});
  }
  std::stable_sort(places_.begin(), places_.end(),
                   [](const Place& a, const Place& b) { return a.name < b.name; });
  const auto repeats = [](const Place& a, const Place& b) {
    if (a.name != b.name) return false;
    if (!same_tensor(*a.file, *b.file, a.name)) {
      fail(ErrorCode::kInvalidFile,
           "tensor {} occurs in {} and in {} with different values; keep one of the two files",
           quoted_name(a.name), a.file->what(), b.file->what());
    }
    return true;
  };
  places_.erase(std::unique(places_.begin(), places_.end(), repeats), places_.end());
  for (const Place& place : places_) {
    if (const auto found = absent_.find(place.name); found != absent_.end()) absent_.erase(found);
  }
}

const SafetensorsFile* SafetensorsFolder::file_of(std::string_view name) const {
  const auto found = std::lower_bound(
      places_.begin(), places_.end(), name,
      [](const Place& place, std::string_view wanted) { return place.name < wanted; });
  return found == places_.end() || found->name != name ? nullptr : found->file;
}

const TensorInfo* SafetensorsFolder::find(std::string_view name) const {
  const SafetensorsFile* file = file_of(name);
  if (file != nullptr) return file->find(name);
  const auto absent = absent_.find(name);
  if (absent == absent_.end()) return nullptr;
  fail(ErrorCode::kNotFound, "tensor {} is in {}, which {} names and which is missing; fetch it",
       quoted_name(name), quoted_name(absent->second.shard), absent->second.index);
}

std::vector<std::string> SafetensorsFolder::names() const {
  if (files_.size() == 1) return files_[0]->names();
  std::vector<std::string> names;
  for (const auto& file : files_) {
    for (std::string& name : file->names()) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<std::string> SafetensorsFolder::refused_names() const {
  std::vector<std::string> names;
  for (const auto& file : files_) {
    for (std::string& name : file->refused_names()) names.push_back(std::move(name));
  }
  for (const auto& [name, absence] : absent_) names.push_back(name);
  return names;
}

HostArray SafetensorsFolder::read(std::string_view name) const {
  const SafetensorsFile* file = file_of(name);
  if (file == nullptr) {
    fail(ErrorCode::kNotFound, "there is no tensor {} in {}{}", quoted_name(name),
         files_[0]->what(), files_.size() > 1 ? " and the files beside it" : "");
  }
  return file->read(name);
}

void SafetensorsFolder::done_with(std::string_view name) const {
  if (const SafetensorsFile* file = file_of(name)) file->done_with(name);
}

}  // namespace bl
