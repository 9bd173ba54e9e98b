#include "model/arch_section.h"

#include "base/error.h"
#include "base/json.h"

namespace bl {

ArchSection::ArchSection(const Json& json, const ArchSection& parent, const std::string& key)
    : ArchSection(json, parent.where(key.c_str())) {
  config_keys_ = parent.config_keys_;
}

ArchSection::ArchSection(const Json& json, std::string where)
    : json_(json),
      where_(std::move(where)),
      config_keys_(std::make_shared<std::set<std::string>>()) {
  if (!json_.is_object()) {
    fail(ErrorCode::kInvalidFile, "{}: is a JSON {}, must be an object", where_, json_.type_name());
  }
}

const Json* ArchSection::find(const char* key) {
  known_.insert(key);
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

void ArchSection::read(const char* key, std::string& to) {
  if (const Json* value = find(key)) {
    if (!value->is_string()) fail(ErrorCode::kInvalidFile, "{}: must be a string", where(key));
    to = value->get<std::string>();
  }
}

void ArchSection::read(const char* key, bool& to) {
  if (const Json* value = find(key)) {
    if (!value->is_boolean()) {
      fail(ErrorCode::kInvalidFile, "{}: must be true or false", where(key));
    }
    to = value->get<bool>();
  }
}

void ArchSection::read(const char* key, std::optional<bool>& to) {
  bool value = false;
  if (find(key) == nullptr) return;
  read(key, value);
  to = value;
}

void ArchSection::read(const char* key, std::optional<std::string>& to) {
  std::string value;
  if (find(key) == nullptr) return;
  read(key, value);
  to = value;
}

void ArchSection::read(const char* key, ArchValue& to) {
  if (const Json* value = find(key)) {
    to = parse_arch_value(*value, where(key));
    add_config_keys(to, *config_keys_);
  }
}

void ArchSection::read(const char* key, Condition& to) {
  if (const Json* value = find(key)) {
    to = parse_condition(*value, where(key));
    add_config_keys(to, *config_keys_);
  }
}

void ArchSection::read_key(const char* key, std::string& to) {
  read(key, to);
  if (!to.empty()) config_keys_->insert(to);
}

void ArchSection::read_key(const char* key, std::vector<std::string>& to) {
  read(key, to);
  config_keys_->insert(to.begin(), to.end());
}

void ArchSection::read(const char* key, std::vector<std::string>& to) {
  const Json* value = find(key);
  if (value == nullptr) return;
  to.clear();
  const auto add = [&](const Json& item) {
    if (!item.is_string()) {
      fail(ErrorCode::kInvalidFile, "{}: must be a string or a list of strings", where(key));
    }
    to.push_back(item.get<std::string>());
  };
  if (value->is_array()) {
    for (const Json& item : *value) add(item);
  } else {
    add(*value);
  }
}

Json join_arch(const Json& base, const Json& patch) {
  if (!base.is_object() || !patch.is_object()) return patch;
  Json joined = base;
  for (const auto& [key, value] : patch.items()) {
    const auto it = joined.find(key);
    joined[key] = it == joined.end() ? value : join_arch(*it, value);
  }
  return joined;
}

void ArchSection::done() const {
  for (const auto& [key, value] : json_.items()) {
    if (!known_.contains(key)) {
      fail(ErrorCode::kInvalidFile, "{}: unknown key \"{}\" (archs/README.md lists them)", where_,
           key);
    }
  }
}

}  // namespace bl
