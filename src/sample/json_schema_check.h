#pragma once
#include "base/json_fwd.h"

namespace bl {

// Refuses what the grammar library would pass over in silence, so that an answer never breaks the
// schema that it was asked for (JSON Schema 2020-12): keywords that it does not know, keywords
// beside `$ref`, `const`, `enum` and the like, of which it reads one (a `type` that says nothing
// new may stand there), formats beside patterns, bounds of no type and bounds that leave no number.
// What a reference leads to is checked with it. Of `oneOf` that only one holds is not asked. Throws
// kInvalidArgument with the place as a JSON pointer.
void check_json_schema(const OrderedJson& schema);

// The same for all schemas that lie in a structural tag, and what regex_dialect.h says of the
// patterns of its formats, however deep.
void check_structural_tag(const OrderedJson& tag);

}  // namespace bl
