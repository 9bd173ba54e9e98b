#include "grammar/value_rules.h"

#include <algorithm>

#include "base/error.h"
#include "grammar/ebnf_literal.h"
#include "grammar/json_string.h"
#include "grammar/schema_grammar.h"

namespace bl {

std::string ValueRules::rule(int value) {
  const auto [found, added] = names_.try_emplace(value, "");
  if (added) {
    found->second = writer_.reserve();
    open_.push_back(value);
  }
  return found->second;
}

void ValueRules::finish() {
  while (!open_.empty()) {
    const int value = open_.back();
    open_.pop_back();
    writer_.define(names_.at(value), choices(value));
  }
}

std::vector<std::string> ValueRules::choices(int value) {
  std::vector<std::string> choices;
  const auto add_literal = [&](ValueKind kind, const char* text) {
    if (table_.allows(value, kind)) choices.push_back(ebnf_literal(text));
  };
  add_literal(ValueKind::kNull, "null");
  add_literal(ValueKind::kFalse, "false");
  add_literal(ValueKind::kTrue, "true");
  if (!table_.numbers(value).empty()) choices.push_back(writer_.automaton(table_.numbers(value)));
  if (!table_.strings(value).empty()) choices.push_back(strings(table_.strings(value)));
  for (const ArrayForm& form : table_.arrays(value)) choices.push_back(array_rule(*this, form));
  for (const ObjectForm& form : table_.objects(value)) choices.push_back(object_rule(*this, form));
  return choices;
}

std::string ValueRules::strings(const StringForm& form) {
  const Automaton json =
      json_strings(form.texts, form.any_escape ? StringEscapes::kAll : StringEscapes::kNotAscii);
  return writer_.counted(json, {form.fewest, form.most, form.texts.states.size()});
}

std::string ValueRules::key(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '/';
  });
  if (plain) return ebnf_literal('"' + name + '"');
  return writer_.automaton(json_strings(one_of_texts({name}), StringEscapes::kNotAscii));
}

std::string grammar_of_schema(const OrderedJson& schema, const JsonForm& form) {
  SchemaDocument document(schema);
  SchemaLogic logic(document, form.tool_parameters);
  ValueTable table(logic);
  RuleWriter writer(form.whitespace);
  ValueRules rules(table, writer, form.closed);
  const int root = table.number_of({{&schema}});
  if (!table.possible(root)) document.refuse(schema, "allows no value at all");
  const std::string first = rules.rule(root);
  rules.finish();
  return writer.text(first);
}

}  // namespace bl
