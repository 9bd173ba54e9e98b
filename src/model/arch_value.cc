#include "model/arch_value.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

ArchValue::Alternative parse_alternative(const Json& json, const std::string& where) {
  ArchValue::Alternative result;
  if (json.is_string()) {
    const std::string text = json.get<std::string>();
    if (text.empty()) fail(ErrorCode::kInvalidFile, "{}: an empty key", where);
    result.kind = text[0] == '=' ? ArchValue::Kind::kExpression : ArchValue::Kind::kKey;
    result.text = text[0] == '=' ? text.substr(1) : text;
    return result;
  }
  if (json.is_number() || json.is_boolean()) {
    result.constant = std::make_shared<const Json>(json);
    return result;
  }
  if (json.is_object() && json.size() == 1 && json.contains("text")) {
    result.constant = std::make_shared<const Json>(json["text"]);
    if (!result.constant->is_string()) {
      fail(ErrorCode::kInvalidFile, "{}: \"text\" must be a string", where);
    }
    return result;
  }
  if (json.is_object() && json.size() == 2 && json.contains("if") && json.contains("is") &&
      !(json["is"].is_object() && json["is"].contains("if"))) {
    result = parse_alternative(json["is"], where);
    result.condition = parse_condition(json["if"], where);
    return result;
  }
  fail(ErrorCode::kInvalidFile,
       "{}: {} is no value; a value is a config key, \"=expression\", a number, a boolean, "
       "{{\"text\": …}}, {{\"if\": …, \"is\": …}} or a list of these",
       where, json_text(json));
}

// Adds the words of an expression: runs of characters that keys consist of, without numbers.
void add_words(const std::string& text, std::set<std::string>& keys) {
  constexpr std::string_view kSeparators = " */()";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!word.empty() && (word[0] < '0' || word[0] > '9')) keys.insert(word);
    at = end + 1;
  }
}

}  // namespace

std::string key_of_term(const std::string& term) {
  const std::size_t from = term[0] == '!' || term[0] == '?' ? 1 : 0;
  return term.substr(
      from, term.find('=') == std::string::npos ? std::string::npos : term.find('=') - from);
}

void add_config_keys(const Condition& condition, std::set<std::string>& keys) {
  for (const std::string& term : condition.terms) keys.insert(key_of_term(term));
}

void add_config_keys(const ArchValue& value, std::set<std::string>& keys) {
  for (const ArchValue::Alternative& alternative : value.alternatives) {
    add_config_keys(alternative.condition, keys);
    if (alternative.kind == ArchValue::Kind::kKey) keys.insert(alternative.text);
    if (alternative.kind == ArchValue::Kind::kExpression) add_words(alternative.text, keys);
  }
}

ArchValue parse_arch_value(const Json& json, const std::string& where) {
  ArchValue value;
  if (json.is_array()) {
    for (const Json& item : json) value.alternatives.push_back(parse_alternative(item, where));
  } else {
    value.alternatives.push_back(parse_alternative(json, where));
  }
  return value;
}

Condition parse_condition(const Json& json, const std::string& where) {
  Condition condition;
  const auto add = [&](const Json& term) {
    if (!term.is_string() || term.get_ref<const std::string&>().empty()) {
      fail(ErrorCode::kInvalidFile,
           "{}: a condition is \"key\", \"!key\", \"?key\" or \"key=text\"", where);
    }
    condition.terms.push_back(term.get<std::string>());
  };
  if (json.is_array()) {
    for (const Json& term : json) add(term);
  } else {
    add(json);
  }
  return condition;
}

}  // namespace bl
