#include "model/hf_config.h"

#include <charconv>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

// Returns the value at a dotted path below `node`, or nullptr.
const Json* walk(const Json* node, std::string_view path) {
  while (!path.empty()) {
    const std::size_t dot = path.find('.');
    const std::string_view segment = path.substr(0, dot);
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    if (node->is_object()) {
      const auto it = node->find(std::string(segment));
      if (it == node->end()) return nullptr;
      node = &*it;
    } else if (node->is_array()) {
      std::size_t index = 0;
      const auto [end, error] =
          std::from_chars(segment.data(), segment.data() + segment.size(), index);
      if (error != std::errc() || end != segment.data() + segment.size() || index >= node->size()) {
        return nullptr;
      }
      node = &(*node)[index];
    } else {
      return nullptr;
    }
  }
  return node;
}

}  // namespace

HfConfig::HfConfig(Json root, std::string file) : root_(std::move(root)), file_(std::move(file)) {
  if (!root_.is_object()) {
    fail(ErrorCode::kInvalidFile, "{}: holds a JSON {}, must be an object", file_,
         root_.type_name());
  }
}

std::string HfConfig::architecture() const {
  const auto it = root_.find("architectures");
  if (it == root_.end() || it->is_null() || (it->is_array() && it->empty())) return {};
  if (!it->is_array() || !(*it)[0].is_string()) {
    fail(ErrorCode::kInvalidFile,
         "{}: \"architectures\" must be a list with the name of the model class, such as "
         "[\"…ForCausalLM\"]",
         file_);
  }
  return (*it)[0].get<std::string>();
}

std::string HfConfig::model_type() const {
  const auto it = root_.find("model_type");
  return it != root_.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::optional<HfConfig::Found> HfConfig::find(std::string_view path) const {
  if (path.starts_with('/')) {
    const Json* value = walk(&root_, path.substr(1));
    if (value == nullptr || value->is_null()) return std::nullopt;
    return Found{value, std::string(path.substr(1))};
  }
  for (const std::string& scope : scopes_) {
    const Json* base = walk(&root_, scope);
    const Json* value = base == nullptr ? nullptr : walk(base, path);
    if (value == nullptr) continue;
    if (value->is_null()) return std::nullopt;
    return Found{value, scope.empty() ? std::string(path) : scope + "." + std::string(path)};
  }
  const Json* value = walk(&defaults_, path);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return Found{value, std::string(path)};
}

}  // namespace bl
