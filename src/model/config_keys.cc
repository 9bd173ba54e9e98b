#include "model/config_keys.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace bl {
namespace {

const Json* find_text_kind(const HfConfig& config) {
  const auto text = config.root().find("text_config");
  if (text == config.root().end() || !text->is_object()) return nullptr;
  const auto kind = text->find("model_type");
  return kind == text->end() || !kind->is_string() ? nullptr : &*kind;
}

const ClassOptions* options_of(const ArchSpec& arch, const HfConfig& config) {
  if (arch.class_options.empty()) return nullptr;
  const auto only = arch.class_options.find("");
  if (only != arch.class_options.end()) return &only->second;
  const Json* given = find_text_kind(config);
  const std::string kind = given == nullptr ? arch.text_kind : given->get<std::string>();
  const auto it = arch.class_options.find(kind);
  if (it != arch.class_options.end()) return &it->second;
  std::string kinds;
  for (const auto& [name, options] : arch.class_options) {
    kinds += (kinds.empty() ? "" : ", ") + name;
  }
  fail(ErrorCode::kUnsupported,
       "{}: text_config.model_type is {}, which is not supported in this architecture; must be one "
       "of {}",
       config.file(), json_text(Json(kind.substr(0, 60))), kinds);
}

bool same_value(const Json& a, const Json& b) {
  const auto none = [](const Json& value) {
    return value.is_null() || value == false ||
           ((value.is_array() || value.is_object()) && value.empty());
  };
  return a == b || (none(a) && none(b));
}

bool is_word_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

// A key as it is, or as a JSON string where it has characters that would spoil the line.
std::string shown(const std::string& key) {
  const bool plain =
      std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c <= '~'; });
  return plain ? key : json_text(Json(key));
}

// A key of a description with {i} as the pattern that it stands for.
std::string as_pattern(std::string key) {
  for (std::size_t at = key.find("{i}"); at != std::string::npos; at = key.find("{i}")) {
    key.replace(at, 3, "*");
  }
  return key;
}

// The first segments of a dotted pattern, as many as `key` has; nothing if it has no more than
// that.
std::optional<std::string_view> outer_part(std::string_view pattern, std::string_view key) {
  std::size_t end = pattern.find('.');
  for (auto dots = std::count(key.begin(), key.end(), '.'); dots > 0; --dots) {
    if (end == std::string_view::npos) return std::nullopt;
    end = pattern.find('.', end + 1);
  }
  if (end == std::string_view::npos) return std::nullopt;
  return pattern.substr(0, end);
}

// The whole numbers in a text, without those that are a part of a word such as "fp32".
std::set<std::int64_t> numbers_of(std::string_view text) {
  std::set<std::int64_t> numbers;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_word_character(text[end])) ++end;
    std::int64_t number = 0;
    const auto read = std::from_chars(text.data() + at, text.data() + end, number);
    if (end > at && read.ec == std::errc() && read.ptr == text.data() + end) numbers.insert(number);
    at = end + 1;
  }
  return numbers;
}

// Finds the unknown keys of one config.
class KeyCheck {
 public:
  KeyCheck(const ArchSpec& arch, const HfConfig& config)
      : arch_(arch), config_(config), patterns_(arch.without_effect) {
    for (const std::string& key : arch.config_keys) {
      patterns_.push_back(as_pattern(key.starts_with('/') ? key.substr(1) : key));
    }
  }

  std::vector<std::string> run() {
    for (const auto& [key, value] : config_.root().items()) {
      const bool scope =
          value.is_object() && std::find(config_.scopes().begin(), config_.scopes().end(), key) !=
                                   config_.scopes().end();
      if (!scope) {
        check(key, key, value);
        continue;
      }
      for (const auto& [name, member] : value.items()) check(key + "." + name, name, member);
    }
    return std::move(unknown_);
  }

 private:
  // `full` is the path from the top, `key` the path from the scope.
  void check(const std::string& full, const std::string& key, const Json& value) {
    if (value.is_structured() && is_read_by_member(full, key)) {
      if (value.is_array()) return;
      for (const auto& [name, member] : value.items()) {
        check(full + "." + name, key + "." + name, member);
      }
    } else if (!is_known(full, key, value) && !is_unused_layer_type(key, value)) {
      check_option(full, key, value);
    }
  }

  // Objects are read by member: to have asked for the whole does not say that its values matter.
  bool is_known(const std::string& full, const std::string& key, const Json& value) const {
    return (!value.is_object() && config_.asked().contains(full)) ||
           std::any_of(patterns_.begin(), patterns_.end(), [&](const std::string& pattern) {
             return matches_pattern(key, pattern) || matches_pattern(full, pattern) ||
                    matches_pattern(in_section(key), pattern);
           });
  }

  // "dtype" of "attn_config.dtype": nested configs have the keys that every config has.
  static std::string_view in_section(std::string_view key) {
    const std::size_t dot = key.find('.');
    const bool nested = dot != std::string_view::npos && key.substr(0, dot).ends_with("_config");
    return nested ? key.substr(dot + 1) : key;
  }

  // Whether something reads or knows single members of an object, rather than the whole.
  bool is_read_by_member(const std::string& full, const std::string& key) const {
    const auto below = config_.asked().lower_bound(full + ".");
    if (below != config_.asked().end() && below->starts_with(full + ".")) return true;
    return std::any_of(patterns_.begin(), patterns_.end(), [&](const std::string& pattern) {
      const auto outer = outer_part(pattern, key);
      return outer && matches_pattern(key, *outer);
    });
  }

  // Parameters of a type that no layer has, such as rope_parameters.sliding_attention.
  bool is_unused_layer_type(const std::string& key, const Json& value) const {
    const std::size_t dot = key.rfind('.');
    if (dot == std::string::npos || !value.is_object()) return false;
    const std::string type = key.substr(dot + 1);
    return type == "full_attention" || arch_.types.contains(type);
  }

  void check_option(const std::string& full, const std::string& key, const Json& value) {
    const auto option = config_.defaults().find(key);
    if (option == config_.defaults().end() || value.is_object()) {
      if (!value.is_null()) unknown_.push_back(full);
    } else if (!same_value(value, *option) && !is_equivalent(key, value)) {
      fail(ErrorCode::kUnsupported,
           "{}: {} is {}, which is not supported for {}; only its default {} is", config_.file(),
           full, json_shown(value), config_.architecture(), json_shown(*option));
    }
  }

  bool is_equivalent(const std::string& key, const Json& value) const {
    if (arch_.equivalent == nullptr || !arch_.equivalent->contains(key)) return false;
    const Json& values = arch_.equivalent->at(key);
    return std::find(values.begin(), values.end(), value) != values.end();
  }

  const ArchSpec& arch_;
  const HfConfig& config_;
  std::vector<std::string> patterns_;
  std::vector<std::string> unknown_;
};

}  // namespace

bool matches_pattern(std::string_view text, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  pattern.remove_prefix(star + 1);
  for (std::size_t at = star; at <= text.size(); ++at) {
    if (matches_pattern(text.substr(at), pattern)) return true;
  }
  return false;
}

void prepare_config(const ArchSpec& arch, HfConfig& config) {
  config.set_scopes(arch.scopes);
  const ClassOptions* options = config.has_class_options() ? options_of(arch, config) : nullptr;
  Json defaults = options == nullptr ? Json::object() : *options->defaults;
  if (arch.defaults) {
    for (const auto& [key, value] : arch.defaults->items()) defaults[key] = value;
  }
  config.set_defaults(std::move(defaults));
  if (options == nullptr) return config.forget_class_options();
  config.set_aliases(options->aliases);
}

void warn_of_unknown_keys(const ModelSpec& spec) {
  std::string list;
  for (const std::string& key : spec.unknown_keys) list += (list.empty() ? "" : ", ") + shown(key);
  if (list.empty()) return;
  log_warning("{}: {} does not know these keys, which are ignored: {}", spec.config_file,
              spec.architecture, list);
}

std::string note_of_sizes(const HfConfig::Sizes& sizes, const std::string& architecture,
                          std::string_view message) {
  const std::set<std::int64_t> numbers = numbers_of(message);
  std::string given;
  std::string absent;
  const auto is_token = [](const std::string& key) { return key.ends_with("_token_id"); };
  const auto add = [](std::string& list, const auto& entry) {
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", entry.first, entry.second);
  };
  for (const auto& entry : sizes.given) {
    if (numbers.contains(entry.second) && !is_token(entry.first)) add(given, entry);
  }
  for (const auto& entry : sizes.absent) {
    if (!is_token(entry.first)) add(absent, entry);
  }
  std::string note;
  if (!given.empty()) note += "; config.json says " + given;
  if (!absent.empty()) {
    note += fmt::format("; absent keys have the defaults of {}: {}", architecture, absent);
  }
  return note;
}

std::vector<std::string> unknown_keys(const ArchSpec& arch, const HfConfig& config) {
  return KeyCheck(arch, config).run();
}

}  // namespace bl
