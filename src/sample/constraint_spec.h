#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "grammar/json_form.h"

namespace bl {

// The form that the text of an answer must have, as a request asks for it.
struct ConstraintSpec {
  enum class Kind {
    kNone,
    kJsonObject,  // any JSON object; `text` is empty
    kJsonSchema,  // `text` is a JSON schema
    kRegex,       // `text` is a regular expression that the whole answer must match
    // `text` is EBNF or GBNF with the rule `root` or, if it has no "::=", Lark with `start`.
    kGrammar,
    // `text` is a structural tag of xgrammar in JSON: free text with constrained parts between
    // tags.
    kStructuralTag,
  };
  Kind kind = Kind::kNone;
  std::string text{};
  JsonWhitespace whitespace{};  // of JSON, between its tokens
  // JSON schema: an object whose schema has properties and no word on others holds nothing else,
  // and a list with prefixItems likewise (JsonForm::closed).
  bool strict = true;
  bool tool_parameters = false;  // JSON schema: see JsonForm
  // The answer is free up to and including this token, such as the one that ends a model's
  // reasoning, and constrained after it. −1 constrains the answer from its beginning.
  std::int32_t trigger_token = -1;
  // The answer ends as soon as its text is complete, even if more could follow.
  bool prefer_end = false;
  // Further constraints that must hold at the same time, each with a trigger of its own. The text
  // is complete when it is complete for all of them. Their own `also` must be empty.
  std::vector<ConstraintSpec> also{};

  bool operator==(const ConstraintSpec&) const = default;
  explicit operator bool() const { return kind != Kind::kNone || !also.empty(); }
};

// The kind's name in error messages, such as "JSON schema".
std::string_view name_of(ConstraintSpec::Kind kind);

// The answer must be one of `texts`; with `ignore_case`, in any mix of upper and lower case
// (case_variants() in text/unicode.h). Throws kInvalidArgument if the list is empty or a text
// contains a zero byte or is not valid UTF-8.
ConstraintSpec one_of(std::span<const std::string> texts, bool ignore_case = false);

// The answer must begin with one of `texts`. Throws as one_of() does.
ConstraintSpec beginning_with(std::span<const std::string> texts);

// Limits on what one constraint may cost, so that no request's grammar takes the memory or time of
// others. Exceeding one is an error. If several constraints hold together, their sum counts.
struct ConstraintLimits {
  std::size_t parts = 16;  // constraints that hold together
  std::size_t text_bytes = 256 << 10;
  std::int64_t nesting = 128;             // depth of brackets in the text
  double compile_seconds = 10;            // processor time
  std::size_t compile_bytes = 512 << 20;  // size of the compiled grammar
  // Processor seconds for matching one answer: each token earns `token_seconds`, and unused time is
  // saved up to `saved_seconds`. Other requests wait meanwhile, so these bound how much a grammar
  // slows them.
  double token_seconds = 0.01;
  double saved_seconds = 0.25;
  std::size_t answer_bytes = 256 << 20;  // memory for matching one answer
  std::size_t cache_bytes = 256 << 20;   // all cached grammars together
};

// Checks everything that can be checked without compiling. Throws kInvalidArgument or kLimit.
void validate(const ConstraintSpec& spec, const ConstraintLimits& limits = {});

// Reads the constraint from the body of a request. It is given by one of these keys:
//   response_format  {"type": "text" | "json_object" | "json_schema" | "regex" | "grammar" |
//                    "structural_tag", …}. A json_schema comes as in OpenAI's API ({"name",
//                    "schema", "strict"}) or bare, a regex as {"pattern"}, a grammar as
//                    {"grammar"}, a structural_tag as {"format"} or {"structures", "triggers"}
//   json_schema, guided_json                         a JSON schema: an object, or its text
//   regex_pattern, guided_regex, regex               a regular expression
//   grammar_string, grammar, guided_grammar, ebnf    a grammar
//   structural_tag                                   an object, or its text
//   guided_choice    a list of texts; the answer is one of them, with
//                    "guided_choice_ignore_case": true in any case
//   guided_prefix    a list of texts; the answer begins with one of them
// and may have trigger_token (a token id), prefer_eos (prefer_end) and json_whitespace ("default",
// "compact" or a number, see json_whitespace_of()) beside it. Two of the keys
// are an error. Constraints that must hold together are given by
//   constraints      a list of objects with one of the keys above each. The body's trigger_token
//   and
//                    prefer_eos apply to those that have none of their own.
// Throws kInvalidArgument with `what` in front.
ConstraintSpec read_constraint(const OrderedJson& body, std::string_view what);

}  // namespace bl
