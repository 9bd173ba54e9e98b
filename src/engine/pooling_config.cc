// Which pooling a model's files ask for.

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "engine/embedding.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

struct PoolingKey {
  const char* key;
  Pooling pooling;
};
constexpr std::array kKeys{PoolingKey{"pooling_mode_mean_tokens", Pooling::kMean},
                           PoolingKey{"pooling_mode_lasttoken", Pooling::kLast},
                           PoolingKey{"pooling_mode_cls_token", Pooling::kFirst}};

std::string text_at(const Json& module, const char* key) {
  const auto found = module.find(key);
  return found != module.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The name of a module's class without its path: "Pooling" of
// "sentence_transformers.models.Pooling".
std::string class_of(const Json& module) {
  const std::string type = text_at(module, "type");
  return type.substr(type.rfind('.') + 1);
}

Pooling read_pooling_module(const fs::path& file) {
  const Json config = read_json_file(file);
  std::optional<Pooling> found;
  for (const auto& item : config.items()) {
    const std::string& key = item.key();
    if (!key.starts_with("pooling_mode_") || item.value() != true) continue;
    const auto* known = std::find_if(kKeys.begin(), kKeys.end(),
                                     [&](const PoolingKey& each) { return key == each.key; });
    if (known == kKeys.end() || found) {
      fail(ErrorCode::kUnsupported,
           "{}: '{}' is not a pooling that is implemented, which are the mean, the last token and "
           "the first one, each alone; choose one with --pooling",
           file.string(), key);
    }
    found = known->pooling;
  }
  if (!found) fail(ErrorCode::kInvalidFile, "{}: no pooling_mode_… is true", file.string());
  return *found;
}

}  // namespace

std::optional<Pooling> pooling_of(std::string_view name) {
  if (name == "mean") return Pooling::kMean;
  if (name == "last") return Pooling::kLast;
  if (name == "cls") return Pooling::kFirst;
  return std::nullopt;
}

std::optional<Pooling> read_pooling(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  if (!fs::exists(file)) return std::nullopt;
  const Json modules = read_json_file(file);
  if (!modules.is_array()) {
    fail(ErrorCode::kInvalidFile, "{}: should be a list of modules", file.string());
  }
  std::optional<Pooling> pooling;
  for (const Json& module : modules) {
    if (!module.is_object()) {
      fail(ErrorCode::kInvalidFile, "{}: a module is not an object", file.string());
    }
    const std::string name = class_of(module);
    if (name == "Transformer" || name == "Normalize") continue;
    if (name != "Pooling") {
      fail(ErrorCode::kUnsupported,
           "{}: a module '{}' follows the model, and only Pooling and Normalize are implemented",
           file.string(), name);
    }
    pooling = read_pooling_module(folder / text_at(module, "path") / "config.json");
  }
  return pooling;
}

}  // namespace bl
