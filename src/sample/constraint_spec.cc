#include "sample/constraint_spec.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "sample/json_schema_check.h"
#include "sample/regex_dialect.h"

namespace bl {
namespace {

using Kind = ConstraintSpec::Kind;

bool holds_json(Kind kind) { return kind == Kind::kJsonSchema || kind == Kind::kStructuralTag; }

// The deepest nesting of brackets, whatever they mean, and the rest of what stacks: signs that
// turn what stands before them into a part of something larger. Brackets in strings count only in
// texts that are no JSON, where what is a string depends on the grammar of grammars.
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
    fail(ErrorCode::kInvalidArgument, "{}: {} should be a text", what, key);
  }
  return value.get<std::string>();
}

// JSON that may also be given as the text of it.
std::string json_text_of(const OrderedJson& value, std::string_view what, std::string_view key) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object() && !value.is_boolean()) {
    fail(ErrorCode::kInvalidArgument, "{}: {} should be an object", what, key);
  }
  return json_text(value);
}

// Null where there is no such member, or it is null.
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
  spec.text = json_text_of(wrapped ? schema["schema"] : schema, what, "json_schema");
  if (!wrapped) return spec;
  if (const OrderedJson* strict = given(schema, "strict")) {
    spec.strict = flag_of(*strict, what, "json_schema.strict");
  }
  return spec;
}

// The older form, which names texts between tags and what begins them, as the one that there is
// now.
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
  if (type == "json_object" || type == "json") return {.kind = Kind::kJsonObject};
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

// A literal of EBNF.
std::string literal(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      made += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      made += fmt::format("\\x{:02x}", byte);
    } else {
      made += c;
    }
  }
  return made + '"';
}

ConstraintSpec read_choice(const OrderedJson& value, std::string_view what, std::string_view key) {
  const auto is_text = [](const OrderedJson& one) { return one.is_string(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_text)) {
    fail(ErrorCode::kInvalidArgument, "{}: {} should be a list of texts", what, key);
  }
  return one_of(value.get<std::vector<std::string>>());
}

// What goes with a constraint of any kind.
void read_rest(const OrderedJson& body, std::string_view what, ConstraintSpec& spec) {
  if (const OrderedJson* token = given(body, "trigger_token")) {
    const bool fits = token->is_number_integer() && *token >= 0 &&
                      *token <= std::numeric_limits<std::int32_t>::max();
    if (!fits) fail(ErrorCode::kInvalidArgument, "{}: trigger_token should be a token's id", what);
    spec.trigger_token = token->get<std::int32_t>();
  }
  if (const OrderedJson* prefer = given(body, "prefer_eos")) {
    spec.prefer_end = flag_of(*prefer, what, "prefer_eos");
  }
}

}  // namespace

ConstraintSpec one_of(std::span<const std::string> texts) {
  if (texts.empty()) fail(ErrorCode::kInvalidArgument, "there is no text to choose from");
  ConstraintSpec spec{.kind = Kind::kGrammar, .text = "root ::= "};
  for (const std::string& text : texts) {
    if (text.find('\0') != text.npos) {
      fail(ErrorCode::kInvalidArgument, "a text to choose from holds a zero byte");
    }
    if (&text != &texts.front()) spec.text += " | ";
    spec.text += literal(text);
  }
  return spec;
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

void validate(const ConstraintSpec& spec, const ConstraintLimits& limits) {
  if (!spec) return;
  const std::string_view what = name_of(spec.kind);
  if (spec.kind == Kind::kJsonObject) return;
  if (spec.text.empty()) fail(ErrorCode::kInvalidArgument, "the {} is empty", what);
  if (spec.text.size() > limits.text_bytes) {
    fail(ErrorCode::kLimit, "the {} has {} bytes, at most {} are read", what, spec.text.size(),
         limits.text_bytes);
  }
  if (spec.text.find('\0') != spec.text.npos) {
    fail(ErrorCode::kInvalidArgument, "the {} holds a zero byte at {}", what, spec.text.find('\0'));
  }
  const std::int64_t nesting = nesting_of(spec.text, holds_json(spec.kind));
  if (nesting > limits.nesting) {
    fail(ErrorCode::kLimit, "the {} has brackets {} deep, at most {} are read", what, nesting,
         limits.nesting);
  }
  if (spec.kind == Kind::kRegex && !anchors_end_alternatives(spec.text)) {
    fail(ErrorCode::kInvalidArgument,
         "the {} has ^ or $ in its middle, where nothing can match: it is matched with all of the "
         "answer",
         what);
  }
  if (holds_json(spec.kind)) {
    const OrderedJson parsed = parse_ordered_json(spec.text, what);
    if (!parsed.is_object() && !(parsed.is_boolean() && spec.kind == Kind::kJsonSchema)) {
      fail(ErrorCode::kInvalidArgument, "the {} should be a JSON object", what);
    }
    if (spec.kind == Kind::kJsonSchema) {
      check_json_schema(parsed);
    } else {
      check_tag_schemas(parsed);
    }
  }
}

ConstraintSpec read_constraint(const OrderedJson& body, std::string_view what) {
  constexpr std::array<std::pair<const char*, Kind>, 10> kKeys{{
      {"response_format", Kind::kNone},
      {"guided_choice", Kind::kNone},
      {"json_schema", Kind::kJsonSchema},
      {"guided_json", Kind::kJsonSchema},
      {"regex_pattern", Kind::kRegex},
      {"guided_regex", Kind::kRegex},
      {"grammar_string", Kind::kGrammar},
      {"grammar", Kind::kGrammar},
      {"guided_grammar", Kind::kGrammar},
      {"structural_tag", Kind::kStructuralTag},
  }};
  ConstraintSpec spec;
  const char* from = nullptr;
  for (const auto& [key, kind] : kKeys) {
    const OrderedJson* value = given(body, key);
    if (value == nullptr) continue;
    ConstraintSpec next{.kind = kind};
    if (key == std::string_view("guided_choice")) {
      next = read_choice(*value, what, key);
    } else if (kind == Kind::kNone) {
      next = read_format(*value, what);
    } else {
      next.text = holds_json(kind) ? json_text_of(*value, what, key) : text_of(*value, what, key);
    }
    if (!next) continue;
    if (spec) {
      fail(ErrorCode::kInvalidArgument, "{}: {} and {} are given; one constraint an answer", what,
           from, key);
    }
    spec = std::move(next);
    from = key;
  }
  if (spec) read_rest(body, what, spec);
  return spec;
}

}  // namespace bl
