#include "sample/constraint_spec.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "grammar/ebnf_literal.h"
#include "sample/json_schema_check.h"
#include "sample/regex_grammar.h"
#include "text/unicode.h"

namespace bl {
namespace {

using Kind = ConstraintSpec::Kind;

bool holds_json(Kind kind) { return kind == Kind::kJsonSchema || kind == Kind::kStructuralTag; }

// The deepest nesting of brackets of any kind, which bounds how deep parsers recurse. Brackets in
// strings are ignored only if the text is JSON; in other languages it depends on the grammar what a
// string is.
std::int64_t nesting_of(std::string_view text, bool json) {
  std::int64_t depth = 0;
  std::int64_t deepest = 0;
  bool in_string = false;
  bool escaped = false;
  for (const char c : text) {
    const bool was_escaped = std::exchange(escaped, false);
    if (was_escaped) continue;
    if (c == '\\') {
      escaped = true;
    } else if (c == '"' && json) {
      in_string = !in_string;
    } else if (!in_string && (c == '(' || c == '[' || c == '{')) {
      deepest = std::max(deepest, ++depth);
    } else if (!in_string && (c == ')' || c == ']' || c == '}')) {
      depth = std::max<std::int64_t>(depth - 1, 0);
    }
  }
  return deepest;
}

std::string text_of(const OrderedJson& value, std::string_view what, std::string_view key) {
  if (!value.is_string()) {
    fail(ErrorCode::kInvalidArgument, "{}: {} should be a string", what, key);
  }
  return value.get<std::string>();
}

// Parses JSON that came with a request: errors are kInvalidArgument, not kInvalidFile.
OrderedJson parse_text(const std::string& text, std::string_view what) {
  try {
    return parse_ordered_json(text, what);
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidArgument, "{}", error.what());
  }
}

// Returns JSON as text. The value may be the JSON itself or a string that holds it.
std::string json_text_of(const OrderedJson& value, std::string_view what, std::string_view key) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object() && !value.is_boolean()) {
    fail(ErrorCode::kInvalidArgument, "{}: {} should be an object", what, key);
  }
  return json_text(value);
}

// The member `name`, or null if it is absent or null.
const OrderedJson* given(const OrderedJson& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool flag_of(const OrderedJson& value, std::string_view what, std::string_view key) {
  if (!value.is_boolean()) {
    fail(ErrorCode::kInvalidArgument, "{}: {} should be true or false", what, key);
  }
  return value.get<bool>();
}

const OrderedJson& member(const OrderedJson& object, std::string_view what,
                          std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const OrderedJson* found = given(object, name)) return *found;
  }
  fail(ErrorCode::kInvalidArgument, "{}: response_format has no {}", what, *names.begin());
}

ConstraintSpec read_schema_format(const OrderedJson& format, std::string_view what) {
  const OrderedJson& schema = member(format, what, {"json_schema", "schema"});
  ConstraintSpec spec{.kind = Kind::kJsonSchema};
  const bool wrapped = schema.is_object() && schema.contains("schema");
  // A json_schema with a name but no schema would be read as a schema that allows everything.
  const bool names_one =
      schema.is_object() && schema.contains("name") &&
      std::ranges::all_of(schema.items(), [](const auto& item) {
        return item.key() == "name" || item.key() == "description" || item.key() == "strict";
      });
  if (!wrapped && names_one && given(format, "json_schema") != nullptr) {
    fail(ErrorCode::kInvalidArgument, "{}: json_schema has a name but no schema", what);
  }
  spec.text = json_text_of(wrapped ? schema["schema"] : schema, what, "json_schema");
  if (!wrapped) return spec;
  if (const OrderedJson* strict = given(schema, "strict")) {
    spec.strict = flag_of(*strict, what, "json_schema.strict");
  }
  return spec;
}

// Converts the older form (a list of structures, and the triggers that begin them) to the current
// one.
ConstraintSpec read_structural_tag(const OrderedJson& format, std::string_view what) {
  ConstraintSpec spec{.kind = Kind::kStructuralTag, .text = json_text(format)};
  if (!format.contains("structures")) return spec;
  const OrderedJson& structures = member(format, what, {"structures"});
  const OrderedJson& triggers = member(format, what, {"triggers"});
  if (!structures.is_array() || !triggers.is_array()) {
    fail(ErrorCode::kInvalidArgument, "{}: structures and triggers should be lists", what);
  }
  OrderedJson tags = OrderedJson::array();
  for (const OrderedJson& one : structures) {
    const OrderedJson* begin = one.is_object() ? given(one, "begin") : nullptr;
    const OrderedJson* schema = one.is_object() ? given(one, "schema") : nullptr;
    const OrderedJson* end = one.is_object() ? given(one, "end") : nullptr;
    if (begin == nullptr || schema == nullptr || end == nullptr) {
      fail(ErrorCode::kInvalidArgument, "{}: a structure should have begin, schema and end", what);
    }
    tags.push_back({{"begin", *begin},
                    {"content", {{"type", "json_schema"}, {"json_schema", *schema}}},
                    {"end", *end}});
  }
  spec.text = json_text(OrderedJson{
      {"type", "structural_tag"},
      {"format", {{"type", "triggered_tags"}, {"triggers", triggers}, {"tags", tags}}}});
  return spec;
}

ConstraintSpec read_format(const OrderedJson& format, std::string_view what) {
  if (!format.is_object()) {
    fail(ErrorCode::kInvalidArgument, "{}: response_format should be an object with a type", what);
  }
  const std::string type = text_of(member(format, what, {"type"}), what, "response_format.type");
  if (type == "text") return {};
  if (type == "json_object" || type == "json") {
    // Clients of llama-server put a schema beside this type.
    if (given(format, "schema") != nullptr) return read_schema_format(format, what);
    return {.kind = Kind::kJsonObject};
  }
  if (type == "json_schema") return read_schema_format(format, what);
  if (type == "regex") {
    return {.kind = Kind::kRegex,
            .text = text_of(member(format, what, {"pattern", "regex"}), what, "pattern")};
  }
  if (type == "grammar") {
    return {.kind = Kind::kGrammar,
            .text = text_of(member(format, what, {"grammar"}), what, "grammar")};
  }
  if (type == "structural_tag") return read_structural_tag(format, what);
  fail(
      ErrorCode::kInvalidArgument,
      "{}: response_format.type is {}, should be text, json_object, json_schema, regex, grammar or "
      "structural_tag",
      what, json_text(OrderedJson(type.substr(0, 60))));
}

std::string class_of(const std::vector<char32_t>& characters) {
  std::string made = "[";
  for (const char32_t c : characters) append_utf8(c, made);
  return made + ']';
}

// Makes an EBNF sequence that matches the text in any case: classes for letters, literals for the
// rest.
std::string caseless(std::string_view text) {
  std::string made;
  std::string plain;
  const auto add = [&](const std::string& element) {
    if (!made.empty()) made += ' ';
    made += element;
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    const std::vector<char32_t> variants = case_variants(point.value);
    if (variants.size() == 1) {
      plain += text.substr(at, point.size);
    } else {
      if (!plain.empty()) add(ebnf_literal(std::exchange(plain, {})));
      add(class_of(variants));
    }
    at += point.size;
  }
  if (!plain.empty() || made.empty()) add(ebnf_literal(plain));
  return made;
}

// Joins the texts as EBNF alternatives.
std::string alternatives(std::span<const std::string> texts, bool ignore_case) {
  if (texts.empty()) fail(ErrorCode::kInvalidArgument, "there is no text to choose from");
  std::string made;
  for (const std::string& text : texts) {
    if (text.find('\0') != text.npos) {
      fail(ErrorCode::kInvalidArgument, "a text to choose from contains a zero byte");
    }
    if (!is_valid_utf8(text)) {
      fail(ErrorCode::kInvalidArgument, "a text to choose from is not valid UTF-8");
    }
    if (&text != &texts.front()) made += " | ";
    made += ignore_case ? caseless(text) : ebnf_literal(text);
  }
  return made;
}

ConstraintSpec read_texts(const OrderedJson& body, std::string_view what, const std::string& key) {
  const OrderedJson& value = body[key];
  const auto is_text = [](const OrderedJson& one) { return one.is_string(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_text)) {
    fail(ErrorCode::kInvalidArgument, "{}: {} should be a list of strings", what, key);
  }
  const auto texts = value.get<std::vector<std::string>>();
  if (key == "guided_prefix") return beginning_with(texts);
  const OrderedJson* ignore = given(body, "guided_choice_ignore_case");
  return one_of(texts, ignore != nullptr && flag_of(*ignore, what, "guided_choice_ignore_case"));
}

// Reads the one key of those listed in read_constraint() that is present.
ConstraintSpec read_one(const OrderedJson& body, std::string_view what) {
  constexpr std::array<std::pair<const char*, Kind>, 13> kKeys{{
      {"response_format", Kind::kNone},
      {"guided_choice", Kind::kNone},
      {"guided_prefix", Kind::kNone},
      {"json_schema", Kind::kJsonSchema},
      {"guided_json", Kind::kJsonSchema},
      {"regex_pattern", Kind::kRegex},
      {"guided_regex", Kind::kRegex},
      {"regex", Kind::kRegex},
      {"grammar_string", Kind::kGrammar},
      {"grammar", Kind::kGrammar},
      {"guided_grammar", Kind::kGrammar},
      {"ebnf", Kind::kGrammar},
      {"structural_tag", Kind::kStructuralTag},
  }};
  if (given(body, "guided_choice_ignore_case") != nullptr &&
      given(body, "guided_choice") == nullptr) {
    fail(ErrorCode::kInvalidArgument, "{}: guided_choice_ignore_case needs guided_choice", what);
  }
  ConstraintSpec spec;
  const char* from = nullptr;
  for (const auto& [key, kind] : kKeys) {
    const OrderedJson* value = given(body, key);
    if (value == nullptr) continue;
    ConstraintSpec next{.kind = kind};
    if (key == std::string_view("response_format")) {
      next = read_format(*value, what);
    } else if (kind == Kind::kNone) {
      next = read_texts(body, what, key);
    } else {
      next.text = holds_json(kind) ? json_text_of(*value, what, key) : text_of(*value, what, key);
    }
    if (!next) continue;
    if (spec) {
      fail(ErrorCode::kInvalidArgument,
           "{}: {} and {} are both given; to combine constraints, list them under constraints",
           what, from, key);
    }
    spec = std::move(next);
    from = key;
  }
  return spec;
}

// Reads the keys that go with every kind of constraint.
void read_rest(const OrderedJson& body, std::string_view what, ConstraintSpec& spec) {
  if (const OrderedJson* token = given(body, "trigger_token")) {
    const bool fits = token->is_number_integer() && *token >= 0 &&
                      *token <= std::numeric_limits<std::int32_t>::max();
    if (!fits) fail(ErrorCode::kInvalidArgument, "{}: trigger_token should be a token id", what);
    spec.trigger_token = token->get<std::int32_t>();
  }
  if (const OrderedJson* whitespace = given(body, "json_whitespace")) {
    try {
      spec.whitespace = json_whitespace_of(whitespace->is_string() ? whitespace->get<std::string>()
                                                                   : json_text(*whitespace));
    } catch (const Error& error) {
      fail(error.code(), "{}: json_whitespace {}", what, error.what());
    }
  }
  if (const OrderedJson* prefer = given(body, "prefer_eos")) {
    spec.prefer_end = flag_of(*prefer, what, "prefer_eos");
  }
}

}  // namespace

ConstraintSpec one_of(std::span<const std::string> texts, bool ignore_case) {
  return {.kind = Kind::kGrammar, .text = "root ::= " + alternatives(texts, ignore_case)};
}

ConstraintSpec beginning_with(std::span<const std::string> texts) {
  return {.kind = Kind::kGrammar,
          .text = fmt::format("root ::= ({}) [\\x00-\\U0010FFFF]*", alternatives(texts, false))};
}

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "no constraint";
    case Kind::kJsonObject:
      return "JSON object";
    case Kind::kJsonSchema:
      return "JSON schema";
    case Kind::kRegex:
      return "regular expression";
    case Kind::kGrammar:
      return "grammar";
    case Kind::kStructuralTag:
      return "structural tag";
  }
  return "?";
}

namespace {

void validate_alone(const ConstraintSpec& spec, const ConstraintLimits& limits) {
  const std::string_view what = name_of(spec.kind);
  if (spec.kind == Kind::kJsonObject) return;
  if (spec.kind == Kind::kNone) {
    fail(ErrorCode::kInvalidArgument, "one of the combined constraints is empty");
  }
  if (spec.text.empty()) fail(ErrorCode::kInvalidArgument, "the {} is empty", what);
  if (spec.text.size() > limits.text_bytes) {
    fail(ErrorCode::kLimit, "the {} has {} bytes; at most {} are allowed", what, spec.text.size(),
         limits.text_bytes);
  }
  if (spec.text.find('\0') != spec.text.npos) {
    fail(ErrorCode::kInvalidArgument, "the {} contains a zero byte at offset {}", what,
         spec.text.find('\0'));
  }
  const std::int64_t nesting = nesting_of(spec.text, holds_json(spec.kind));
  if (nesting > limits.nesting) {
    fail(ErrorCode::kLimit, "the {} nests brackets {} deep; at most {} are allowed", what, nesting,
         limits.nesting);
  }
  if (!is_valid_utf8(spec.text)) {
    const std::string valid = to_valid_utf8(spec.text);
    const auto wrong =
        std::mismatch(spec.text.begin(), spec.text.end(), valid.begin(), valid.end()).first;
    fail(ErrorCode::kInvalidArgument, "the {} is not valid UTF-8 at byte {}", what,
         wrong - spec.text.begin());
  }
  if (spec.kind == Kind::kRegex) {
    if (const std::string fault = regex_fault(spec.text); !fault.empty()) {
      fail(ErrorCode::kInvalidArgument, "the {} {}", what, fault);
    }
  }
  if (holds_json(spec.kind)) {
    const OrderedJson parsed = parse_text(spec.text, what);
    if (!parsed.is_object() && !(parsed.is_boolean() && spec.kind == Kind::kJsonSchema)) {
      fail(ErrorCode::kInvalidArgument, "the {} should be a JSON object", what);
    }
    if (spec.kind == Kind::kStructuralTag) check_structural_tag(parsed);
  }
}

}  // namespace

void validate(const ConstraintSpec& spec, const ConstraintLimits& limits) {
  if (!spec) return;
  if (spec.also.size() >= limits.parts) {
    fail(ErrorCode::kLimit, "there are {} constraints; at most {} may be combined",
         spec.also.size() + 1, limits.parts);
  }
  validate_alone(spec, limits);
  std::size_t bytes = spec.text.size();
  for (const ConstraintSpec& part : spec.also) {
    if (!part.also.empty()) {
      fail(ErrorCode::kInvalidArgument,
           "a constraint in a list of constraints cannot have a list of its own");
    }
    validate_alone(part, limits);
    bytes += part.text.size();
  }
  if (bytes > limits.text_bytes) {
    fail(ErrorCode::kLimit, "the constraints have {} bytes together; at most {} are allowed", bytes,
         limits.text_bytes);
  }
}

ConstraintSpec read_constraint(const OrderedJson& body, std::string_view what) {
  ConstraintSpec spec = read_one(body, what);
  if (spec) read_rest(body, what, spec);
  const OrderedJson* list = given(body, "constraints");
  if (list == nullptr) return spec;
  if (!list->is_array()) {
    fail(ErrorCode::kInvalidArgument, "{}: constraints should be a list of objects", what);
  }
  for (const OrderedJson& one : *list) {
    const std::string name = fmt::format("{}: constraints[{}]", what, &one - &list->front());
    if (!one.is_object() || given(one, "constraints") != nullptr) {
      fail(ErrorCode::kInvalidArgument, "{} should be an object with one constraint", name);
    }
    ConstraintSpec part = read_one(one, name);
    if (!part) fail(ErrorCode::kInvalidArgument, "{} has no constraint", name);
    read_rest(body, what, part);
    read_rest(one, name, part);
    if (spec) {
      spec.also.push_back(std::move(part));
    } else {
      spec = std::move(part);
    }
  }
  return spec;
}

}  // namespace bl
