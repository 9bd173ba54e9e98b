#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace bl::server {

// What requests may name in a folder of the server.
enum class FolderKind {
  kModels,     // folders with a config.json, and .gguf files
  kAdapters,   // folders with an adapter_config.json
  kTemplates,  // .jinja files
  kPresets,    // .json files
};

// The named things of a folder. Names are paths below it without the extension of a file, such as
// "org/name". A client's name is only ever compared with those of the listing, so no name leads to
// another place. Links that lead out of the folder are not followed. Thread-safe.
class NamedFolder {
 public:
  struct Item {
    std::string name;
    std::filesystem::path path;
  };
  // An empty root: there is no such folder, and nothing in it.
  NamedFolder(std::filesystem::path root, FolderKind kind) : root_(std::move(root)), kind_(kind) {}

  bool given() const { return !root_.empty(); }
  // All items by name. Reads the folder again where that was last done more than a second ago.
  std::vector<Item> list() const;
  // Case and ":latest" do not count, unless several names differ in nothing else.
  std::optional<Item> find(const std::string& name) const;

 private:
  std::vector<Item> scan() const;

  std::filesystem::path root_;
  FolderKind kind_;
  mutable std::mutex mutex_;
  mutable std::vector<Item> items_;
  mutable std::chrono::steady_clock::time_point scanned_{};
};

// Whether two names of models mean the same: case and ":latest" do not count.
bool same_model_name(std::string_view a, std::string_view b);

// Bytes of the files of a model: of a file, or of all files of a folder, without its subfolders.
std::uint64_t bytes_on_disk(const std::filesystem::path& path);

// When a file or folder was changed last, in Unix seconds; 0 where that is not known.
std::int64_t modified_at(const std::filesystem::path& path);

}  // namespace bl::server
