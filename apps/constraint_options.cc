#include "constraint_options.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "usage_error.h"

namespace bl {
namespace {

// Returns the value itself if it starts like a JSON object, otherwise the content of the file that
// it names.
std::string file_or_text(const std::string& value) {
  const std::size_t first = value.find_first_not_of(" \t\r\n");
  if (first != value.npos && value[first] == '{') return value;
  return read_file(value, ConstraintLimits{}.text_bytes);
}

ConstraintSpec choice_of(const std::string& list) {
  const OrderedJson body{{"guided_choice", parse_ordered_json(list, "--choice")}};
  return read_constraint(body, "--choice");
}

}  // namespace

ConstraintSpec ConstraintOptions::spec() const {
  using Kind = ConstraintSpec::Kind;
  const std::array given{json,
                         schema.has_value(),
                         grammar.has_value(),
                         regex.has_value(),
                         structural_tag.has_value(),
                         choice.has_value()};
  if (std::count(given.begin(), given.end(), true) > 1) {
    fail_usage(
        "--json, --json-schema, --regex, --grammar, --structural-tag and --choice exclude each "
        "other; give only one");
  }
  ConstraintSpec spec;
  if (json) spec.kind = Kind::kJsonObject;
  if (schema) spec = {.kind = Kind::kJsonSchema, .text = file_or_text(*schema)};
  if (grammar) {
    spec = {.kind = Kind::kGrammar, .text = read_file(*grammar, ConstraintLimits{}.text_bytes)};
  }
  if (regex) spec = {.kind = Kind::kRegex, .text = *regex};
  if (structural_tag) {
    spec = {.kind = Kind::kStructuralTag, .text = file_or_text(*structural_tag)};
  }
  if (choice) spec = choice_of(*choice);
  if (end_early && !spec)
    fail_usage("--end-early needs an option that constrains the answer, such as --json");
  spec.prefer_end = end_early;
  if (whitespace) {
    try {
      spec.whitespace = json_whitespace_of(*whitespace);
    } catch (const Error& error) {
      fail_usage("--json-whitespace {}", error.what());
    }
  }
  validate(spec);
  return spec;
}

}  // namespace bl
