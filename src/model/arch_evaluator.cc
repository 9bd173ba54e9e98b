#include "model/arch_evaluator.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

constexpr int kMaxDepth = 8;  // of sizes that refer to other sizes

bool truthy(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0.0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

// Whether `value` is this word, or this number or boolean as JSON writes it.
bool equal_text(const Json& value, const std::string& text) {
  if (value.is_string()) return value.get_ref<const std::string&>() == text;
  return (value.is_number() || value.is_boolean()) && value.dump() == text;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

ArchEvaluator ArchEvaluator::for_layer(std::int64_t layer, std::int64_t layers) const {
  ArchEvaluator result = *this;
  result.layer_ = layer;
  result.layers_ = layers;
  return result;
}

std::string ArchEvaluator::with_layer(std::string text) const {
  for (std::size_t at = text.find("{i}"); at != std::string::npos; at = text.find("{i}", at)) {
    text.replace(at, 3, std::to_string(layer_));
  }
  return text;
}

std::optional<ArchEvaluator::Found> ArchEvaluator::find_key(const std::string& key) const {
  const std::optional<HfConfig::Found> found = config_.find(with_layer(key));
  return found ? entry_of(*found) : std::nullopt;
}

// The layer's entry of a list, or the value itself.
std::optional<ArchEvaluator::Found> ArchEvaluator::entry_of(const HfConfig::Found& found) const {
  if (!found.value->is_array()) return Found{*found.value, found.path};
  if (layer_ < 0 || found.value->size() < static_cast<std::size_t>(layers_)) {
    fail(ErrorCode::kInvalidFile, "{}: {} is a list of {}, must be one value{}", config_.file(),
         found.path, found.value->size(),
         layer_ < 0 ? std::string() : fmt::format(" or a list of one a layer ({})", layers_));
  }
  const Json& entry = (*found.value)[static_cast<std::size_t>(layer_)];
  if (entry.is_null()) return std::nullopt;
  return Found{entry, fmt::format("{}[{}]", found.path, layer_)};
}

std::optional<double> ArchEvaluator::number_of(const std::string& name, int depth) const {
  double constant = 0.0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), constant);
  if (error == std::errc() && end == name.data() + name.size()) return constant;
  if (name == "layer_number" && layer_ >= 0) return static_cast<double>(layer_ + 1);
  std::optional<Found> found;
  if (const auto it = sizes_.find(name); it != sizes_.end()) {
    found = find_at(it->second, depth + 1);
  } else {
    found = find_key(name);
  }
  if (!found) return std::nullopt;
  if (!found->value.is_number()) wrong(name, *found, "a number");
  return found->value.get<double>();
}

// Grammar: factor { (* | / | up) factor }, evaluated from left to right; a factor is a number, a
// name or sqrt(name). `a up b` is the least multiple of b that is not below ⌊a⌋.
std::optional<double> ArchEvaluator::expression(std::string_view text, int depth) const {
  if (depth > kMaxDepth) circular();
  double result = 0.0;
  char operation = '=';
  while (true) {
    text = trimmed(text);
    const std::size_t end = text.find_first_of("*/ ");
    std::string_view factor = trimmed(text.substr(0, end));
    const bool root = factor.starts_with("sqrt(") && factor.ends_with(")");
    if (root) factor = factor.substr(5, factor.size() - 6);
    std::optional<double> value = number_of(std::string(factor), depth);
    if (!value) return std::nullopt;
    if (root) value = std::sqrt(*value);
    if (operation == '=') result = *value;
    if (operation == '*') result *= *value;
    if (operation == '/') result /= *value;
    if (operation == 'u') result = std::ceil(std::floor(result) / *value) * *value;
    if (end == std::string_view::npos) return result;
    text = trimmed(text.substr(end));
    if (text.empty()) return result;
    operation = text[0];
    text.remove_prefix(operation == 'u' && text.starts_with("up ") ? 3 : 1);
    if (operation != '*' && operation != '/' && operation != 'u') return std::nullopt;
  }
}

std::optional<ArchEvaluator::Found> ArchEvaluator::find(const ArchValue& value) const {
  return find_at(value, 0);
}

std::optional<ArchEvaluator::Found> ArchEvaluator::find_at(const ArchValue& value,
                                                           int depth) const {
  bool decided = false;       // a null, or the class, says that there is no value
  HfConfig::LookUp of_class;  // holds unless the file has a later key
  for (const ArchValue::Alternative& alternative : value.alternatives) {
    if (of_class.found && alternative.kind != ArchValue::Kind::kKey) break;
    if (!holds(alternative.condition)) continue;
    if (alternative.kind == ArchValue::Kind::kConstant) {
      if (decided && alternative.condition.terms.empty()) continue;
      return Found{*alternative.constant, "the architecture's default"};
    }
    if (alternative.kind == ArchValue::Kind::kKey) {
      const HfConfig::LookUp look = config_.look_up(with_layer(alternative.text));
      decided = decided || look.given || look.declared;
      if (!look.found) continue;
      if (!look.given) {
        if (!of_class.found) of_class = look;
      } else if (std::optional<Found> found = entry_of(*look.found)) {
        config_.note_used(look);
        return found;
      }
    } else if (const auto size = sizes_.find(alternative.text); size != sizes_.end()) {
      // A bare name is replaced by its own alternatives, so that messages name the config key.
      if (depth > kMaxDepth) circular();
      if (std::optional<Found> found = find_at(size->second, depth + 1)) return found;
    } else if (const std::optional<double> number = expression(alternative.text, depth)) {
      return Found{*number, alternative.text};
    }
  }
  config_.note_used(of_class);
  return of_class.found ? entry_of(*of_class.found) : std::nullopt;
}

bool ArchEvaluator::holds(const Condition& condition) const {
  for (const std::string& term : condition.terms) {
    if (term[0] == '?') {
      if (!config_.find(with_layer(term.substr(1)))) return false;
      continue;
    }
    const bool negated = term[0] == '!';
    const std::size_t equals = term.find('=');
    const std::string key =
        term.substr(negated ? 1 : 0,
                    equals == std::string::npos ? std::string::npos : equals - (negated ? 1 : 0));
    const std::optional<HfConfig::Found> found = config_.find(with_layer(key));
    bool met = false;
    if (equals != std::string::npos) {
      met = found && equal_text(*found->value, term.substr(equals + 1));
    } else if (found && found->value->is_array() && layer_ >= 0 &&
               found->value->size() >= static_cast<std::size_t>(layers_)) {
      met = truthy((*found->value)[static_cast<std::size_t>(layer_)]);
    } else {
      met = found && truthy(*found->value);
    }
    if (met == negated) return false;
  }
  return true;
}

void ArchEvaluator::circular() const {
  fail(ErrorCode::kInvalidFile, "{}: the architecture's sizes refer to each other in a circle",
       config_.file());
}

void ArchEvaluator::wrong(std::string_view what, const Found& found,
                          const std::string& must) const {
  fail(ErrorCode::kInvalidFile, "{}: {} is {}, must be {} ({})", config_.file(), found.origin,
       json_shown(found.value), must, what);
}

void ArchEvaluator::missing(std::string_view what, const ArchValue& value) const {
  std::string keys;
  std::vector<ArchValue::Alternative> alternatives = value.alternatives;
  if (alternatives.size() == 1 && alternatives[0].kind == ArchValue::Kind::kExpression) {
    const auto size = sizes_.find(alternatives[0].text);
    if (size != sizes_.end()) alternatives = size->second.alternatives;
  }
  for (const ArchValue::Alternative& alternative : alternatives) {
    if (alternative.kind != ArchValue::Kind::kKey) continue;
    keys += fmt::format("{}\"{}\"", keys.empty() ? "" : " or ", with_layer(alternative.text));
  }
  if (keys.empty()) keys = "a value that this architecture derives it from";
  fail(ErrorCode::kInvalidFile, "{}: no {}: must have {}", config_.file(), what, keys);
}

std::optional<std::int64_t> ArchEvaluator::find_whole(std::string_view what, const ArchValue& value,
                                                      Range range) const {
  const std::optional<Found> found = find(value);
  if (!found) return std::nullopt;
  const auto must = [&] {
    return fmt::format("a whole number from {} to {}", range.least, range.most);
  };
  if (!found->value.is_number()) wrong(what, *found, must());
  const auto number = found->value.get<double>();
  if (!(number >= static_cast<double>(range.least) && number <= static_cast<double>(range.most)) ||
      number != std::floor(number)) {
    wrong(what, *found, must());
  }
  return static_cast<std::int64_t>(number);
}

std::int64_t ArchEvaluator::whole(std::string_view what, const ArchValue& value,
                                  Range range) const {
  const std::optional<std::int64_t> found = find_whole(what, value, range);
  if (!found) missing(what, value);
  return *found;
}

std::optional<double> ArchEvaluator::find_real(std::string_view what,
                                               const ArchValue& value) const {
  const std::optional<Found> found = find(value);
  if (!found) return std::nullopt;
  if (!found->value.is_number() || !std::isfinite(found->value.get<double>()) ||
      std::fabs(found->value.get<double>()) > 1e30) {
    wrong(what, *found, "a finite number");
  }
  return found->value.get<double>();
}

double ArchEvaluator::real(std::string_view what, const ArchValue& value, double fallback) const {
  return find_real(what, value).value_or(fallback);
}

std::string ArchEvaluator::null_key(const ArchValue& value) const {
  for (const ArchValue::Alternative& alternative : value.alternatives) {
    if (alternative.kind != ArchValue::Kind::kKey) continue;
    std::string key = with_layer(alternative.text);
    const HfConfig::LookUp look = config_.look_up(key);
    if (!look.found && (look.given || look.declared)) return key;
  }
  return {};
}

bool ArchEvaluator::flag(std::string_view what, const ArchValue& value, bool fallback) const {
  const std::optional<Found> found = find(value);
  if (!found) return null_key(value).empty() && fallback;
  if (!found->value.is_boolean() && !found->value.is_number()) wrong(what, *found, "true or false");
  return truthy(found->value);
}

std::optional<std::string> ArchEvaluator::find_text(std::string_view what,
                                                    const ArchValue& value) const {
  const std::optional<Found> found = find(value);
  if (!found) return std::nullopt;
  if (!found->value.is_string()) wrong(what, *found, "a string");
  return found->value.get<std::string>();
}

}  // namespace bl
