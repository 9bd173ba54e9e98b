#pragma once
#include <optional>
#include <string>

#include "sample/constraint_spec.h"

namespace bl {

// The flags that constrain the form of an answer, for commands that generate.
struct ConstraintOptions {
  bool json = false;
  std::optional<std::string> schema;
  std::optional<std::string> grammar;
  std::optional<std::string> regex;
  std::optional<std::string> structural_tag;
  std::optional<std::string> choice;
  std::optional<std::string> whitespace;
  bool end_early = false;

  template <class V>
  void visit(V&& v) {
    v.group("Constrained output (one of these)");
    v(json, {"--json", "", "any JSON object"});
    v(schema, {"--json-schema", "FILE|TEXT", "JSON that satisfies this JSON schema"});
    v(regex, {"--regex", "RE", "text that matches this regular expression as a whole"});
    v(grammar, {"--grammar", "FILE", "text of this grammar: EBNF or GBNF (rule root), or Lark"});
    v(structural_tag,
      {"--structural-tag", "FILE|TEXT", "free text with constrained parts between tags"});
    v(choice, {"--choice", "LIST", "one of the texts in a JSON list, such as [\"yes\", \"no\"]"});
    v(whitespace,
      {"--json-whitespace", "FORM",
       "white space between the tokens of JSON: default (one blank, or a line break and "
       "up to 64 blanks), compact, or the most characters"});
    v(end_early, {"--end-early", "", "with one of these: end as soon as the text is complete"});
  }

  // Returns the constraint after reading its files and checking everything that needs no model.
  // Throws UsageError if several are given.
  ConstraintSpec spec() const;
};

}  // namespace bl
