#pragma once
#include <optional>
#include <string>

#include "sample/constraint_spec.h"

namespace bl {

// The form that an answer must have, as flags of the commands that generate.
struct ConstraintOptions {
  bool json = false;
  std::optional<std::string> schema;
  std::optional<std::string> grammar;
  std::optional<std::string> regex;
  std::optional<std::string> structural_tag;
  std::optional<std::string> choice;
  bool end_early = false;

  template <class V>
  void visit(V&& v) {
    v.group("Form of the answer (one of these)");
    v(json, {"--json", "", "the answer is a JSON object"});
    v(schema, {"--json-schema", "FILE|TEXT", "… JSON that satisfies this schema"});
    v(regex, {"--regex", "RE", "… a text that this regular expression matches"});
    v(grammar,
      {"--grammar", "FILE", "… a text of this grammar (EBNF or GBNF from rule root; Lark)"});
    v(structural_tag, {"--structural-tag", "FILE|TEXT", "… free text with tags that hold forms"});
    v(choice, {"--choice", "LIST", "… one of these texts, a JSON list such as [\"yes\", \"no\"]"});
    v(end_early, {"--end-early", "", "beside one of these: ends as soon as the form is whole"});
  }

  // Reads the files and checks what can be seen without a model. UsageError where several are
  // given.
  ConstraintSpec spec() const;
};

}  // namespace bl
