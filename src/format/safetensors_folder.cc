#include "format/safetensors_folder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
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

struct Listing {
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

// Says what is untrue about an index; empty if it can be followed. `files` are the shards that it
// names and that exist.
std::string mistake(const SafetensorsIndex& index,
                    const std::vector<std::unique_ptr<SafetensorsFile>>& files) {
  if (!index.mistake.empty()) return index.mistake;
  std::map<std::string, const SafetensorsFile*> by_name;
  for (const auto& file : files) by_name[fs::path(file->what()).filename().string()] = file.get();
  for (const std::string& shard : index.shards) {
    if (!by_name.contains(shard)) {
      return fmt::format("{} names the shard {}, which does not exist", index.path.string(),
                         quoted_name(shard));
    }
  }
  for (const auto& [tensor, shard] : index.shard_of) {
    const auto& entries = by_name.at(shard)->entries();
    const auto found = std::lower_bound(
        entries.begin(), entries.end(), tensor,
        [](const SafetensorsEntry& entry, const std::string& name) { return entry.name < name; });
    if (found == entries.end() || found->name != tensor) {
      return fmt::format("{} places tensor {} in {}, which does not hold it", index.path.string(),
                         quoted_name(tensor), quoted_name(shard));
    }
  }
  return {};
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
  std::optional<SafetensorsIndex> index;
  // Two indexes, for two variants of the weights, do not say which variant is meant.
  if (listing.indexes.size() == 1) index = read_safetensors_index(listing.indexes[0]);
  std::vector<fs::path> others;
  for (const fs::path& path : listing.files) {
    if (!index || index->shards.contains(path.filename().string())) {
      files_.push_back(std::make_unique<SafetensorsFile>(path));
    } else {
      others.push_back(path);
    }
  }
  if (!index) return;
  const std::string untrue = mistake(*index, files_);
  if (untrue.empty() && !has_exl2(files_)) return;
  for (const fs::path& path : others) files_.push_back(std::make_unique<SafetensorsFile>(path));
  if (!untrue.empty() && !has_exl2(files_)) fail(ErrorCode::kInvalidFile, "{}", untrue);
}

void SafetensorsFolder::index_names() {
  for (const auto& file : files_) {
    for (const SafetensorsEntry& entry : file->entries())
      places_.push_back({entry.name, file.get()});
  }
  std::sort(places_.begin(), places_.end(),
            [](const Place& a, const Place& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(places_.begin(), places_.end(),
                         [](const Place& a, const Place& b) { return a.name == b.name; });
  if (twice != places_.end()) {
    fail(ErrorCode::kInvalidFile, "tensor {} occurs in {} and in {}; keep one of the two files",
         quoted_name(twice->name), twice->file->what(), (twice + 1)->file->what());
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
  return file == nullptr ? nullptr : file->find(name);
}

std::vector<std::string> SafetensorsFolder::names() const {
  if (files_.size() == 1) return files_[0]->names();
  std::vector<std::string> names;
  for (const auto& file : files_) {
    for (std::string& name : file->names()) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
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
