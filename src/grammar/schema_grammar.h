#pragma once
#include <string>

#include "base/json_fwd.h"
#include "grammar/json_form.h"

namespace bl {

// Translates a JSON schema (draft 4 to 2020-12) into the EBNF of the grammar library, with the root
// rule `root`. The grammar accepts exactly the JSON texts that satisfy the schema and
//   * have their members in the order in which the schema describes them, undescribed ones last and
//     only where the schema invites them,
//   * write integers without a fraction, and
//   * have white space as `form` says.
// What a grammar cannot say is refused: throws kInvalidArgument or kLimit with the place as a JSON
// pointer. Recursion goes as deep as the schema's references, so call it on a deep stack.
std::string grammar_of_schema(const OrderedJson& schema, const JsonForm& form = {});

}  // namespace bl
