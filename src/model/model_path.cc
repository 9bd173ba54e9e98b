#include "model/model_path.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "format/gguf_split.h"
#include "format/safetensors_index.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhatIsAModel =
    "a model is a folder with config.json and *.safetensors files, or a .gguf file";

// The GGUF models of a folder, one path for each: the first shard that is there stands for a split
// one. Empty if there are .safetensors files, which take precedence.
std::vector<fs::path> gguf_models(const fs::path& folder) {
  std::map<std::string, fs::path> models;  // by name; shards of a model have one name
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::path file = it->path();
    const std::string name = file.filename().string();
    if (name.starts_with(".")) continue;
    if (file.extension() == ".safetensors") return {};
    if (file.extension() != ".gguf") continue;
    const auto shard = parse_gguf_shard_name(file);
    fs::path& model = models[shard ? shard->of(1).string() : name];
    if (model.empty() || file < model) model = file;
  }
  std::vector<fs::path> paths;
  for (const auto& [name, path] : models) paths.push_back(path);
  return paths;
}

// Whether an index of the folder names this file among several.
bool is_shard(const fs::path& file) {
  std::error_code error;
  const fs::path folder = file.parent_path();
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->path().string().ends_with(".safetensors.index.json")) continue;
    const SafetensorsIndex index = read_safetensors_index(it->path());
    if (index.shards.size() > 1 && index.shards.contains(file.filename().string())) return true;
  }
  return false;
}

ModelPath of_weights(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  std::error_code error;
  if (!fs::exists(folder / "config.json", error)) {
    fail(ErrorCode::kNotFound,
         "{}: there is no config.json beside it, without which weights are no "
         "model; {}",
         file.string(), kWhatIsAModel);
  }
  return {.folder = folder, .weights = is_shard(file) ? fs::path() : file};
}

}  // namespace

ModelPath resolve_model_path(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const std::vector<fs::path> models = gguf_models(path);
    if (models.empty()) return {.folder = path};
    if (models.size() == 1) return {.gguf = models[0]};
    std::string list;
    for (const fs::path& model : models) list += (list.empty() ? "" : ", ") + model.string();
    fail(ErrorCode::kInvalidArgument, "{}: the folder holds {} GGUF models; give one of them: {}",
         path.string(), models.size(), list);
  }
  if (!fs::exists(path, error)) {
    fail(ErrorCode::kNotFound, "{}: no such file or folder; {}", path.string(), kWhatIsAModel);
  }
  if (is_gguf(path)) return {.gguf = path};
  if (path.extension() == ".safetensors") return of_weights(path);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  fail(ErrorCode::kInvalidArgument, "{}: this file is no model; {}{}", path.string(), kWhatIsAModel,
       fs::exists(folder / "config.json", error) ? ": here perhaps " + folder.string() : "");
}

bool is_gguf(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  if (path.extension() == ".gguf") return true;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  char magic[4] = {};
  const bool read = std::fread(magic, 1, sizeof magic, file) == sizeof magic;
  std::fclose(file);
  return read && std::memcmp(magic, "GGUF", sizeof magic) == 0;
}

}  // namespace bl
