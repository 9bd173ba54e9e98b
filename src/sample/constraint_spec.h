#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"

namespace bl {

// What form the text of an answer must have.
struct ConstraintSpec {
  enum class Kind {
    kNone,
    kJsonObject,  // any JSON object; no text
    kJsonSchema,  // text: a JSON schema
    kRegex,       // text: a regular expression that the whole answer matches
    kGrammar,  // text: EBNF or GBNF from the rule `root`; Lark from `start` where no "::=" is in it
    kStructuralTag,  // text: JSON of xgrammar's structural tags: free text, and forms between tags
  };
  Kind kind = Kind::kNone;
  std::string text{};
  bool any_whitespace =
      true;            // JSON: white space as anybody writes it; false: on one line, "a": 1, …
  bool strict = true;  // JSON schema: no properties and items but those that it names
  // The answer is free until this token, which begins the constrained part (the end of a model's
  // reasoning); −1: constrained from its beginning.
  std::int32_t trigger_token = -1;
  // The answer ends as soon as its text is whole, whatever else might follow.
  bool prefer_end = false;
  // More of them, which hold at the same time, each from a trigger of its own; the text is whole
  // where it is to every one of them. These have no more themselves.
  std::vector<ConstraintSpec> also{};

  bool operator==(const ConstraintSpec&) const = default;
  explicit operator bool() const { return kind != Kind::kNone || !also.empty(); }
};

std::string_view name_of(ConstraintSpec::Kind kind);

// One of these texts, with `ignore_case` in small or large letters (case_variants(), unicode.h).
// Throws kInvalidArgument where there is none, or one holds a zero byte or is no UTF-8.
ConstraintSpec one_of(std::span<const std::string> texts, bool ignore_case = false);

// Any text that begins with one of these. Throws as one_of() does.
ConstraintSpec beginning_with(std::span<const std::string> texts);

// Bounds of what one constraint may cost; beyond them is an error, so that nobody's grammar costs
// others their memory or time. Of several that hold together, the sum counts.
struct ConstraintLimits {
  std::size_t parts = 16;  // that hold together
  std::size_t text_bytes = 256 << 10;
  std::int64_t nesting = 128;             // of brackets in the text
  double compile_seconds = 10;            // of processor time
  std::size_t compile_bytes = 512 << 20;  // of what the grammar becomes
  // Of processor time while an answer is made: so much for each token, and so much more that tokens
  // before it have not needed. Others wait meanwhile, so this is what a grammar may slow them by.
  double token_seconds = 0.01;
  double saved_seconds = 0.25;
  std::size_t answer_bytes = 256 << 20;  // of what one answer's matching remembers
  std::size_t cache_bytes = 256 << 20;   // of all compiled grammars that are kept
};

// Checks what can be seen without compiling. Throws kInvalidArgument and kLimit.
void validate(const ConstraintSpec& spec, const ConstraintLimits& limits = {});

// The constraint that the body of a request asks for, by one of:
//   response_format  {"type": "text" | "json_object" | "json_schema" | "regex" | "grammar" |
//                    "structural_tag", …}; json_schema as OpenAI has it ({"name", "schema",
//                    "strict"}) or bare, regex {"pattern"}, grammar {"grammar"}, structural_tag
//                    {"format"} or {"structures", "triggers"}
//   json_schema      an object or its text        regex_pattern, guided_regex      a text
//   grammar_string, grammar, guided_grammar       a text                structural_tag  an object
//   or its text guided_json      as json_schema
//   guided_choice    texts, of which the answer is one; with guided_choice_ignore_case: true, in
//                    small or large letters
//   guided_prefix    texts, with one of which the answer begins
// and, beside it, trigger_token (an id) and prefer_eos (prefer_end). Two of them are an error; what
// is to hold together stands in
//   constraints      a list of objects that have one of them each. What the body says of trigger
//                    and end holds for those that say nothing themselves.
// Throws kInvalidArgument with `what` in front.
ConstraintSpec read_constraint(const OrderedJson& body, std::string_view what);

}  // namespace bl
