#include "model/gguf_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "model/arch_spec.h"

namespace bl {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

double number_of(const Json& json) { return json.is_number() ? json.get<double>() : 0; }

// Keeps whole numbers integers, since sizes computed from sizes are integers in config.json.
Json from_number(double value, bool whole) {
  if (whole && value == std::floor(value) && std::abs(value) < 1e15) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

}  // namespace

double shortest_decimal(float value) {
  if (!std::isfinite(value)) return static_cast<double>(value);
  char text[64];
  const auto written = std::to_chars(text, text + sizeof text, value);
  double result = 0;
  std::from_chars(text, written.ptr, result);
  return result;
}

GgufMetadata::GgufMetadata(const GgufFile& file, const GgufArch& arch) : file_(file), arch_(arch) {
  prefix_ = std::string(file.text("general.architecture").value_or("")) + ".";
}

std::string GgufMetadata::full_key(std::string_view key) const {
  if (key.starts_with('/')) return std::string(key.substr(1));
  return prefix_ + std::string(key);
}

Json GgufMetadata::list_of(const std::string& full) const {
  const auto& array = std::get<GgufValue::Array>(file_.find(full)->value);
  Json list = Json::array();
  if (array.element == GgufValueType::kF32 || array.element == GgufValueType::kF64) {
    const std::vector<double> numbers = file_.numbers(full).value();
    for (const double x : numbers) list.push_back(shortest_decimal(static_cast<float>(x)));
    return list;
  }
  if (array.element == GgufValueType::kBool) {
    const std::vector<bool> flags = file_.booleans(full).value();
    for (std::size_t i = 0; i < flags.size(); ++i) list.push_back(static_cast<bool>(flags[i]));
    return list;
  }
  const std::vector<std::int64_t> numbers = file_.integers(full).value();
  // Equal numbers for all blocks collapse into one; others stay a list.
  const bool equal = !numbers.empty() && std::all_of(numbers.begin(), numbers.end(),
                                                     [&](auto x) { return x == numbers.front(); });
  return equal ? Json(numbers.front()) : Json(numbers);
}

Json GgufMetadata::value_of(std::string_view key) const {
  const bool required = key.ends_with('!');
  if (required) key.remove_suffix(1);
  const std::string full = full_key(key);
  const GgufValue* value = file_.find(full);
  if (value == nullptr) {
    if (!required) return nullptr;
    fail(ErrorCode::kInvalidFile, "{}: metadata key {} is missing", file_.name(), full);
  }
  switch (value->type) {
    case GgufValueType::kBool:
      return *file_.boolean(full);
    case GgufValueType::kF32:
      return shortest_decimal(static_cast<float>(*file_.number(full)));
    case GgufValueType::kF64:
      return *file_.number(full);
    case GgufValueType::kString:
      return std::string(*file_.text(full));
    case GgufValueType::kArray:
      return list_of(full);
    default:
      return *file_.integer(full);
  }
}

bool GgufMetadata::holds(const std::string& condition) const {
  std::string_view text = condition;
  const bool negate = text.starts_with('!');
  if (negate) text.remove_prefix(1);
  bool result = false;
  if (text.starts_with("tensor ")) {
    result = file_.find_tensor(text.substr(7)) != nullptr;
  } else {
    const std::size_t equals = text.find('=');
    const Json value = value_of(text.substr(0, equals));
    if (equals != std::string_view::npos) {
      return (value.is_number_integer() &&
              std::to_string(value.get<std::int64_t>()) == text.substr(equals + 1)) != negate;
    }
    result = !value.is_null() && !(value.is_number() && value.get<double>() == 0) &&
             !(value.is_boolean() && !value.get<bool>());
  }
  return result != negate;
}

std::optional<std::int64_t> GgufMetadata::size(std::string_view key) const {
  const Json value = value_of(key);
  if (value.is_null()) return std::nullopt;
  if (value.is_array()) {
    fail(ErrorCode::kUnsupported, "{}: metadata key {} differs from block to block", file_.name(),
         full_key(key));
  }
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0 ||
      value.get<std::int64_t>() > kMaxSize) {
    fail(ErrorCode::kInvalidFile, "{}: metadata key {} is {}, a number from 0 to {} is expected",
         file_.name(), full_key(key), json_text(value), kMaxSize);
  }
  return value.get<std::int64_t>();
}

std::int64_t GgufMetadata::required_size(std::string_view key) const {
  const auto value = size(key);
  if (!value || *value == 0) {
    fail(ErrorCode::kInvalidFile, "{}: metadata key {} is {}; a positive number is expected",
         file_.name(), full_key(key), value ? "0" : "missing");
  }
  return *value;
}

std::int64_t GgufMetadata::layers() const {
  const std::int64_t blocks = required_size("block_count");
  const std::int64_t drafting = size("nextn_predict_layers").value_or(0);
  if (blocks > kMaxLayers || drafting >= blocks) {
    fail(ErrorCode::kInvalidFile, "{}: {} blocks, {} of them for drafting: out of range",
         file_.name(), blocks, drafting);
  }
  return blocks - drafting;
}
std::int64_t GgufMetadata::heads() const { return required_size("attention.head_count"); }
std::int64_t GgufMetadata::kv_heads() const {
  const auto value = size("attention.head_count_kv");
  return value && *value > 0 ? *value : heads();
}
std::int64_t GgufMetadata::head_dim() const {
  const auto length = size("attention.key_length");
  if (length && *length > 0) return *length;
  return required_size("embedding_length") / heads();
}

Json GgufMetadata::arithmetic(const Json& rule) const {
  const auto operands = [&](const char* key) {
    std::vector<Json> values;
    for (const Json& item : rule.at(key)) values.push_back(evaluate(item));
    return values;
  };
  if (rule.contains("root")) {
    const Json value = evaluate(rule.at("root"));
    return value.is_number() ? from_number(std::sqrt(number_of(value)), false) : Json();
  }
  const char* key = rule.contains("product")    ? "product"
                    : rule.contains("quotient") ? "quotient"
                                                : "minus";
  const std::vector<Json> values = operands(key);
  if (values.empty() || !values[0].is_number()) return nullptr;
  double result = number_of(values[0]);
  bool whole = values[0].is_number_integer();
  for (std::size_t i = 1; i < values.size(); ++i) {
    const bool absent = !values[i].is_number();
    if (absent && key[0] != 'm') return nullptr;
    const double x = number_of(values[i]);
    whole = whole && (absent || values[i].is_number_integer());
    if (key[0] == 'p') result *= x;
    if (key[0] == 'q') result = x == 0 ? 0 : result / x;
    if (key[0] == 'm') result -= x;
  }
  return from_number(result, whole);
}

Json GgufMetadata::layer_types(const Json& rule) const {
  if (rule.contains("window") && !holds(rule["window"].get<std::string>())) return nullptr;
  const auto layer_count = static_cast<std::size_t>(layers());
  Json types = Json::array();
  const auto add = [&](bool sliding) {
    types.push_back(sliding ? "sliding_attention" : "full_attention");
  };
  const std::string list = rule.value("list", "attention.sliding_window_pattern");
  if (file_.is_array(full_key(list))) {
    const std::vector<bool> sliding = *file_.booleans(full_key(list));
    if (sliding.size() < layer_count) {
      fail(ErrorCode::kInvalidFile, "{}: metadata key {} has {} entries for {} blocks",
           file_.name(), full_key(list), sliding.size(), layer_count);
    }
    for (std::size_t i = 0; i < layer_count; ++i) add(sliding[i]);
    return types;
  }
  const std::int64_t every = size(list).value_or(rule.value("every", std::int64_t{0}));
  if (every <= 0) return nullptr;
  for (std::size_t i = 0; i < layer_count; ++i) {
    add((static_cast<std::int64_t>(i) + 1) % every != 0);
  }
  return types;
}

Json GgufMetadata::evaluate(const Json& rule) const {
  if (rule.is_string()) return value_of(rule.get<std::string>());
  if (rule.is_array()) {
    for (const Json& alternative : rule) {
      Json value = evaluate(alternative);
      if (!value.is_null()) return value;
    }
    return nullptr;
  }
  if (!rule.is_object()) return rule;
  try {
    if (rule.contains("value")) {
      return rule["value"].is_null() ? Json(Json::value_t::discarded) : rule["value"];
    }
    if (rule.contains("if")) {
      const char* branch = holds(rule["if"].get<std::string>()) ? "then" : "else";
      return rule.contains(branch) ? evaluate(rule[branch]) : Json();
    }
    if (rule.contains("rows")) {
      const GgufTensor* tensor = file_.find_tensor(rule["rows"].get<std::string>());
      return tensor == nullptr ? Json() : Json(tensor->shape[0]);
    }
    if (rule.contains("layer_types")) return layer_types(rule["layer_types"]);
    if (rule.contains("product") || rule.contains("quotient") || rule.contains("minus") ||
        rule.contains("root")) {
      return arithmetic(rule);
    }
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::kInvalidFile, "archs/{}: in rule {}: {}", arch_.name, json_text(rule),
         e.what());
  }
  fail(ErrorCode::kInvalidFile, "archs/{}: unknown rule {}", arch_.name, json_text(rule));
}

namespace {

// Returns the token id at `key` if it lies in the vocabulary.
std::optional<std::int64_t> token_id(const GgufFile& file, const std::string& key) {
  const auto id = file.integer("tokenizer.ggml." + key);
  if (!id) return std::nullopt;
  const auto tokens = file.texts("tokenizer.ggml.tokens");
  // Some writers express "none" as the largest number of the type.
  const bool in_range = *id >= 0 && (!tokens || *id < static_cast<std::int64_t>(tokens->size()));
  return in_range ? id : std::nullopt;
}

// The member of a document at a dotted path.
Json& place_of(Json& document, std::string_view path) {
  Json* place = &document;
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    place = &(*place)[std::string(path.substr(0, dot))];
    path.remove_prefix(dot + 1);
  }
  return (*place)[std::string(path)];
}

}  // namespace

Json gguf_config(const GgufMetadata& metadata) {
  const GgufFile& file = metadata.file();
  const Json architecture = metadata.evaluate(metadata.arch().architecture);
  Json config = {{"architectures", Json::array({architecture})}, {"dtype", "float16"}};
  metadata.required_size("embedding_length");
  metadata.heads();
  metadata.layers();
  for (const auto& [key, rule] : metadata.arch().config.items()) {
    if (key == "rope") {
      add_gguf_rope(metadata, rule, config);
      continue;
    }
    Json value = metadata.evaluate(rule);
    if (value.is_null()) continue;
    if (value.is_discarded()) value = nullptr;
    place_of(config, key) = std::move(value);
  }
  // Always present, as null if need be: readers' own defaults may lie outside the vocabulary.
  const auto set_token = [&](const char* to, const char* from) {
    const auto id = token_id(file, from);
    config[to] = id ? Json(*id) : Json();
  };
  set_token("bos_token_id", "bos_token_id");
  set_token("eos_token_id", "eos_token_id");
  set_token("pad_token_id", "padding_token_id");
  return config;
}

Json gguf_generation_config(const GgufMetadata& metadata, const Json& end_names) {
  const GgufFile& file = metadata.file();
  Json config = Json::object();
  if (const auto id = token_id(file, "bos_token_id")) config["bos_token_id"] = *id;
  if (const auto id = token_id(file, "padding_token_id")) config["pad_token_id"] = *id;
  std::vector<std::int64_t> ends;
  const auto add = [&](std::optional<std::int64_t> id) {
    if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
  };
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    add(token_id(file, name));
  }
  const auto tokens = file.texts("tokenizer.ggml.tokens");
  const auto types = file.integers("tokenizer.ggml.token_type");
  if (tokens && types && types->size() == tokens->size()) {
    constexpr std::int64_t kControl = 3;
    for (std::size_t i = 0; i < tokens->size(); ++i) {
      if ((*types)[i] != kControl) continue;
      const std::string_view token = (*tokens)[i];
      const bool ends_answer = std::any_of(end_names.begin(), end_names.end(), [&](const Json& n) {
        return n.is_string() && n.get_ref<const std::string&>() == token;
      });
      if (ends_answer) add(static_cast<std::int64_t>(i));
    }
  }
  if (ends.size() == 1) config["eos_token_id"] = ends[0];
  if (ends.size() > 1) config["eos_token_id"] = ends;
  return config;
}

}  // namespace bl
