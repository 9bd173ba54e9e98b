#pragma once
#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "engine/model_session.h"

namespace bl {

// The object that --template-vars gives; an empty text is an empty one. Throws UsageError.
OrderedJson parse_template_variables(const std::string& text);

// The options of commands that wrap what the user says with a chat template.
struct TemplateFlags {
  std::string file;
  std::string variables;
  std::string reasoning = "auto";

  template <class V>
  void visit(V&& v) {
    v.group("Chat template");
    v(file, {"--template", "FILE", "a Jinja template to use instead of the model's"});
    v(variables,
      {"--template-vars", "JSON", "variables for the template, such as '{\"thinking\": true}'"});
    v(reasoning,
      {"--reasoning", "on|off|auto", "think before answering, if the template has a switch"});
  }

  // Whether the user has set any of them.
  bool any() const { return !file.empty() || !variables.empty() || reasoning != "auto"; }
  // Checks everything that needs no model, and hands the template to the session. Throws
  // UsageError, and what reading and parsing the template throw.
  void plan(SessionOptions& session) const;
  // The variables for the model's template; --template-vars win over --reasoning. Throws
  // kUnsupported where the template has no switch for reasoning.
  OrderedJson resolve(const ModelText& text) const;
};

}  // namespace bl
