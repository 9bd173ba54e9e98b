// What schemas say about numbers and strings.

#include "base/error.h"
#include "base/json.h"
#include "grammar/pattern.h"
#include "grammar/schema_logic.h"
#include "grammar/string_format.h"

namespace bl {

using Id = SchemaLogic::Id;

Id SchemaLogic::number(NumberAtom atom) {
  numbers_.push_back(std::move(atom));
  return expressions_.atom(static_cast<int>(numbers_.size()) - 1);
}

Id SchemaLogic::read_number(const OrderedJson& schema, const std::string& key) {
  using What = NumberAtom::What;
  const auto value = [&] {
    if (!schema[key].is_number()) document_.refuse(schema, "has {} that is no number", key);
    return decimal_of(schema[key]);
  };
  // In draft 4, exclusiveMinimum says whether minimum itself is left out.
  const auto flag = [&](const char* name) {
    const auto found = schema.find(name);
    return found != schema.end() && found->is_boolean() && found->get<bool>();
  };
  if (key == "minimum") {
    return number({flag("exclusiveMinimum") ? What::kAbove : What::kAtLeast, value()});
  }
  if (key == "maximum") {
    return number({flag("exclusiveMaximum") ? What::kBelow : What::kAtMost, value()});
  }
  if (key == "exclusiveMinimum" && !schema[key].is_boolean())
    return number({What::kAbove, value()});
  if (key == "exclusiveMaximum" && !schema[key].is_boolean())
    return number({What::kBelow, value()});
  if (key == "multipleOf") {
    const Decimal divisor = value();
    if (divisor.negative || divisor.is_zero()) {
      document_.refuse(schema, "has a multipleOf that is not above 0");
    }
    return number({What::kMultiple, divisor});
  }
  return Expressions::kTrue;
}

Id SchemaLogic::string(const std::string& name, StringAtom atom) {
  const auto [found, added] = string_ids_.try_emplace(name, Expressions::kTrue);
  if (!added) return found->second;
  strings_.push_back(std::move(atom));
  found->second = expressions_.atom(static_cast<int>(strings_.size()) - 1);
  return found->second;
}

const Automaton& SchemaLogic::texts(int string_atom) {
  StringAtom& atom = strings_[static_cast<std::size_t>(string_atom)];
  if (atom.texts == nullptr) atom.texts = std::make_shared<const Automaton>(atom.make());
  return *atom.texts;
}

Id SchemaLogic::read_string(const OrderedJson& schema, const std::string& key) {
  if (key == "minLength" || key == "maxLength") {
    const std::size_t length = count(schema, key);
    const bool least = key == "minLength";
    if (least && length == 0) return Expressions::kTrue;
    StringAtom atom;
    atom.bound.emplace(least ? length : 0, std::nullopt);
    if (!least) atom.bound->second = length;
    const std::string place = document_.place(schema);
    atom.make = [bound = *atom.bound, place] {
      const std::size_t most = bound.second.value_or(bound.first);
      if (most > kMostStates) {
        fail(ErrorCode::kLimit,
             "the JSON schema at {} combines a length of {} with not, anyOf, oneOf or if; at most "
             "{} is supported there",
             place, most, kMostStates);
      }
      return text_of_length(bound.first, bound.second);
    };
    return string(fmt::format("{} {}", key, length), std::move(atom));
  }
  if (key == "pattern") {
    if (!schema[key].is_string()) document_.refuse(schema, "has a pattern that is no string");
    const auto& regex = schema[key].get_ref<const std::string&>();
    const std::shared_ptr<const Automaton> found = pattern(schema, regex);
    return string("pattern " + regex, {.texts = found});
  }
  if (key == "format" && schema[key].is_string()) {
    const auto& format = schema[key].get_ref<const std::string&>();
    if (!is_known_format(format)) return Expressions::kTrue;
    return string("format " + format, {.make = [format] { return texts_of_format(format); }});
  }
  return Expressions::kTrue;
}

std::shared_ptr<const Automaton> SchemaLogic::pattern(const OrderedJson& schema,
                                                      const std::string& regex) {
  std::shared_ptr<const Automaton>& known = patterns_[regex];
  if (known != nullptr) return known;
  try {
    known = std::make_shared<const Automaton>(search_of_pattern(regex));
  } catch (const Error& error) {
    fail(error.code(), "the JSON schema at {}: the pattern {} {}", document_.place(schema),
         json_text(OrderedJson(regex.substr(0, 100))), error.what());
  }
  return known;
}

}  // namespace bl
