#include "model/peft_config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <system_error>

#include "base/error.h"
#include "base/json.h"
#include "format/quoted_name.h"
#include "nn/lora.h"

namespace bl {
namespace {

constexpr std::size_t kMaxRules = 4096;
constexpr std::ptrdiff_t kMaxPatterns = 64;
constexpr double kMaxAlpha = 1e9;

// The document and its name, for messages.
class Reader {
 public:
  Reader(const OrderedJson& document, const std::string& file) : document_(document), file_(file) {
    if (!document.is_object()) {
      fail(ErrorCode::kInvalidFile, "{}: should be a JSON object", file);
    }
  }

  // Returns nullptr if the key is absent or null.
  const OrderedJson* find(const char* key) const {
    const auto found = document_.find(key);
    return found == document_.end() || found->is_null() ? nullptr : &*found;
  }
  [[noreturn]] void reject(const std::string& key, const OrderedJson& value,
                           const char* right) const {
    fail(ErrorCode::kInvalidFile, "{}: {} is {}, should be {}", file_, key,
         quoted_name(json_text(value)), right);
  }
  [[noreturn]] void refuse(const char* key, const OrderedJson& value, const char* why) const {
    fail(ErrorCode::kUnsupported, "{}: {} is {}: {}", file_, key, quoted_name(json_text(value)),
         why);
  }
  bool flag(const char* key) const {
    const OrderedJson* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) reject(key, *value, "true or false");
    return value->get<bool>();
  }
  std::int64_t rank(const std::string& key, const OrderedJson& value) const {
    const bool whole = value.is_number_integer() && value >= 1 && value <= kMaxLoraRank;
    if (!whole) reject(key, value, "a rank: a whole number of 1 … 4096");
    return value.get<std::int64_t>();
  }
  double alpha(const std::string& key, const OrderedJson& value) const {
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (!(std::fabs(number) <= kMaxAlpha)) reject(key, value, "a finite number");
    return number;
  }
  std::string where(const char* key) const { return file_ + ": " + key; }
  const std::string& file() const { return file_; }

 private:
  const OrderedJson& document_;
  const std::string& file_;
};

bool is_empty(const OrderedJson& value) {
  return ((value.is_array() || value.is_object() || value.is_string()) && value.empty()) ||
         value == false;
}

void check_kind(const Reader& reader) {
  const OrderedJson* kind = reader.find("peft_type");
  if (kind == nullptr || !kind->is_string()) {
    fail(ErrorCode::kInvalidFile,
         "{}: peft_type is missing; an adapter folder of PEFT says \"LORA\" there", reader.file());
  }
  if (*kind != "LORA") reader.refuse("peft_type", *kind, "only \"LORA\" is supported");
}

// Refuses options that change the result and are not implemented here.
void check_unsupported(const Reader& reader) {
  struct Key {
    const char* name;
    const char* why;
  };
  constexpr Key kKeys[] = {
      {"use_dora", "DoRA also rescales the weights it is added to; only plain LoRA is supported"},
      {"use_qalora", "QA-LoRA is not supported, only plain LoRA"},
      {"lora_bias", "biases of an adapter are not supported; train without lora_bias"},
      {"trainable_token_indices",
       "rows of the embedding are replaced; fold them in with merge_and_unload of PEFT"},
      {"target_parameters",
       "adapters of bare parameters (such as all experts of a layer in one) are not supported, "
       "only of linears"},
      {"layer_replication", "it builds another model out of the layers of the base"},
      {"alora_invocation_tokens",
       "an adapter that begins in the middle of a text is not supported"},
      {"arrow_config", "routing among adapters is not supported"},
  };
  for (const Key& key : kKeys) {
    const OrderedJson* value = reader.find(key.name);
    if (value != nullptr && !is_empty(*value)) reader.refuse(key.name, *value, key.why);
  }
  const OrderedJson* bias = reader.find("bias");
  if (bias != nullptr && *bias != "none") {
    reader.refuse("bias", *bias, "biases trained with an adapter are not supported, only \"none\"");
  }
  // These initialisations subtract the adapter's initial value from the weights of the base model.
  const OrderedJson* start = reader.find("init_lora_weights");
  if (start == nullptr || !start->is_string()) return;
  const std::string& name = start->get_ref<const std::string&>();
  for (const char* kind : {"pissa", "olora", "corda", "loftq", "lora_ga"}) {
    if (!name.starts_with(kind)) continue;
    reader.refuse("init_lora_weights", *start,
                  "the base was changed in training; convert the adapter to plain LoRA with PEFT");
  }
}

// Reads the rules of rank_pattern or alpha_pattern: `{"name or pattern": value}`.
template <class F>
std::vector<PeftRule> read_rules(const Reader& reader, const char* key, F&& value_of) {
  std::vector<PeftRule> rules;
  const OrderedJson* object = reader.find(key);
  if (object == nullptr) return rules;
  if (!object->is_object()) reader.reject(key, *object, "an object of names and values");
  if (object->size() > kMaxRules) {
    fail(ErrorCode::kLimit, "{}: {} has {} entries, more than {}", reader.file(), key,
         object->size(), kMaxRules);
  }
  for (const auto& [pattern, value] : object->items()) {
    const std::string what = fmt::format("{} of {}", key, quoted_name(pattern));
    rules.emplace_back(pattern, static_cast<double>(value_of(what, value)), reader.where(key));
  }
  const auto patterns = std::count_if(rules.begin(), rules.end(),
                                      [](const PeftRule& rule) { return !rule.is_name(); });
  if (patterns > kMaxPatterns) {
    fail(ErrorCode::kLimit, "{}: {} has {} patterns, more than {}; names may be more",
         reader.file(), key, patterns, kMaxPatterns);
  }
  return rules;
}

void read_saved(const Reader& reader, PeftConfig& config) {
  const OrderedJson* saved = reader.find("modules_to_save");
  if (saved == nullptr || is_empty(*saved)) return;
  if (!saved->is_array()) reader.reject("modules_to_save", *saved, "a list of names");
  for (const OrderedJson& name : *saved) {
    if (!name.is_string()) reader.reject("modules_to_save", name, "a list of names");
    config.saved.push_back(name.get<std::string>());
  }
}

void read_targets(const Reader& reader, PeftConfig& config) {
  const OrderedJson* targets = reader.find("target_modules");
  if (targets == nullptr) {
    config.any_target = true;
    return;
  }
  if (targets->is_string()) {
    const std::string& text = targets->get_ref<const std::string&>();
    config.any_target = true;
    if (text.empty()) reader.reject("target_modules", *targets, "a list of names or a pattern");
    return;
  }
  if (!targets->is_array()) {
    reader.reject("target_modules", *targets, "a list of names, a pattern or \"all-linear\"");
  }
  for (const OrderedJson& name : *targets) {
    if (!name.is_string()) {
      reader.reject("target_modules", name, "a list of names");
    }
    config.targets.push_back(name.get<std::string>());
  }
}

void read_layers(const Reader& reader, PeftConfig& config) {
  const OrderedJson* layers = reader.find("layers_to_transform");
  if (layers == nullptr || is_empty(*layers)) return;
  config.layers.emplace();
  const auto add = [&](const OrderedJson& layer) {
    if (!layer.is_number_integer()) {
      reader.reject("layers_to_transform", *layers, "a layer's number or a list of them");
    }
    config.layers->push_back(layer.get<std::int64_t>());
  };
  if (!layers->is_array()) return add(*layers);
  for (const OrderedJson& layer : *layers) add(layer);
}

// Whether the name contains one of these layer numbers between dots.
bool has_layer(std::string_view module, const std::vector<std::int64_t>& layers) {
  while (!module.empty()) {
    const std::size_t dot = module.find('.');
    const std::string_view part = module.substr(0, dot);
    std::int64_t number = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error == std::errc() && end == part.data() + part.size() &&
        std::find(layers.begin(), layers.end(), number) != layers.end()) {
      return true;
    }
    if (dot == std::string_view::npos) break;
    module.remove_prefix(dot + 1);
  }
  return false;
}

bool is_named(const std::vector<std::string>& names, std::string_view module) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return names_module(name, module); });
}

const PeftRule* rule_for(const std::vector<PeftRule>& rules, std::string_view module) {
  for (const PeftRule& rule : rules) {
    if (rule.matches(module)) return &rule;
  }
  return nullptr;
}

}  // namespace

PeftRule::PeftRule(const std::string& pattern, double value, const std::string& where)
    : value_(value) {
  const bool is_plain = std::all_of(pattern.begin(), pattern.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
  });
  if (is_plain) {
    name_ = pattern;
  } else {
    pattern_.emplace("(.*\\.)?(" + pattern + ")", where);
  }
}

bool PeftRule::matches(std::string_view module) const {
  if (pattern_) return pattern_->matches(module);
  if (module.size() < name_.size()) return false;
  const std::size_t before = module.size() - name_.size();
  if (before > 0 && module[before - 1] != '.') return false;
  // PEFT treats every key as a regular expression, in which a dot matches any character.
  return std::equal(name_.begin(), name_.end(),
                    module.begin() + static_cast<std::ptrdiff_t>(before),
                    [](char mine, char other) { return mine == other || mine == '.'; });
}

PeftConfig::PeftConfig(const OrderedJson& document, std::string name) : file(std::move(name)) {
  const Reader reader(document, file);
  check_kind(reader);
  check_unsupported(reader);
  const OrderedJson* r = reader.find("r");
  if (r == nullptr) fail(ErrorCode::kInvalidFile, "{}: r, the rank, is missing", file);
  rank = reader.rank("r", *r);
  const OrderedJson* a = reader.find("lora_alpha");
  if (a == nullptr) fail(ErrorCode::kInvalidFile, "{}: lora_alpha is missing", file);
  alpha = reader.alpha("lora_alpha", *a);
  rank_stabilized = reader.flag("use_rslora");
  rank_rules = read_rules(
      reader, "rank_pattern",
      [&](const std::string& key, const OrderedJson& value) { return reader.rank(key, value); });
  alpha_rules = read_rules(
      reader, "alpha_pattern",
      [&](const std::string& key, const OrderedJson& value) { return reader.alpha(key, value); });
  read_targets(reader, *this);
  read_saved(reader, *this);
  read_layers(reader, *this);
}

std::int64_t PeftConfig::rank_of(std::string_view module) const {
  const PeftRule* rule = rule_for(rank_rules, module);
  return rule != nullptr ? static_cast<std::int64_t>(rule->value()) : rank;
}

double PeftConfig::scale_of(std::string_view module) const {
  const PeftRule* rule = rule_for(alpha_rules, module);
  const double of_module = rule != nullptr ? rule->value() : alpha;
  const auto r = static_cast<double>(rank_of(module));
  return of_module / (rank_stabilized ? std::sqrt(r) : r);
}

bool names_module(std::string_view name, std::string_view module) {
  if (!module.ends_with(name)) return false;
  const std::size_t before = module.size() - name.size();
  return before == 0 || module[before - 1] == '.';
}

bool PeftConfig::is_target(std::string_view module) const {
  if (layers && !has_layer(module, *layers)) return false;
  return any_target || is_named(targets, module);
}

bool PeftConfig::is_saved(std::string_view module) const { return is_named(saved, module); }

}  // namespace bl
