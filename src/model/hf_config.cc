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

// The names under which the file may have a key, best first.
std::vector<std::string> HfConfig::names_of(std::string_view path) const {
  std::vector<std::string> names;
  if (path.find('.') == std::string_view::npos) {
    const auto alias = aliases_.find(std::string(path));
    const std::string name = alias == aliases_.end() ? std::string(path) : alias->second;
    for (const auto& [other, of] : aliases_) {
      if (of == name) names.push_back(other);
    }
    names.push_back(name);
  } else {
    names.emplace_back(path);
  }
  return names;
}

HfConfig::LookUp HfConfig::default_of(const std::string& path) const {
  const auto found_in = [&](const Json* value) {
    LookUp result;
    result.declared = true;
    if (value != nullptr && !value->is_null()) result.found = Found{value, path};
    return result;
  };
  if (const auto it = defaults_.find(path); it != defaults_.end()) return found_in(&*it);
  const std::size_t dot = path.find('.');
  if (dot == std::string::npos) return {};
  const std::string object = path.substr(0, dot);
  const auto it = defaults_.find(object);
  if (it == defaults_.end() || !it->is_object()) return {};
  // An object of the file replaces a default one as a whole.
  for (const std::string& scope : scopes_) {
    const Json* base = walk(&root_, scope);
    if (base != nullptr && base->is_object() && base->contains(object)) return {};
  }
  return found_in(walk(&*it, path.substr(dot + 1)));
}

HfConfig::LookUp HfConfig::look_up(std::string_view path) const {
  const bool top_only = path.starts_with('/');
  const std::vector<std::string> names =
      top_only ? std::vector<std::string>{std::string(path.substr(1))} : names_of(path);
  static const std::vector<std::string> kTop{""};
  LookUp result;
  for (const std::string& scope : top_only ? kTop : scopes_) {
    const Json* base = walk(&root_, scope);
    for (const std::string& name : names) {
      std::string full = scope.empty() ? name : scope + "." + name;
      note(full);
      const Json* value = base == nullptr ? nullptr : walk(base, name);
      if (value == nullptr || result.given) continue;
      result.given = true;
      if (!value->is_null()) result.found = Found{value, std::move(full)};
    }
  }
  return result.given || top_only ? result : default_of(names.back());
}

std::optional<HfConfig::Found> HfConfig::find(std::string_view path) const {
  const LookUp look = look_up(path);
  note_used(look);
  return look.found;
}

void HfConfig::note_used(const LookUp& look) const {
  if (!look.found || !look.found->value->is_number_integer()) return;
  auto& sizes = look.given ? sizes_->given : sizes_->absent;
  sizes.emplace(look.found->path, look.found->value->get<std::int64_t>());
}

}  // namespace bl
