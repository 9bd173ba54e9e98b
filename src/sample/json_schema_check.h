#pragma once
#include "base/json_fwd.h"

namespace bl {

// Whether a format of a structural tag is a JSON schema whose values are written as JSON. Such
// schemas are translated like any other (grammar/schema_grammar.h); the library itself reads those
// whose values are written in another style, such as XML.
bool is_plain_schema_format(const OrderedJson& part);

// Refuses schemas of which the grammar library would silently ignore a part, so that an answer
// never violates the schema that was asked for (JSON Schema 2020-12). Refused are keywords that it
// does not know; keywords beside `$ref`, `const`, `enum` and the like, of which it reads only one
// (a `type` that adds no restriction is fine); a format beside a pattern; bounds without a type;
// and bounds that leave no number. Schemas that references lead to are checked too. That only one
// branch of `oneOf` matches is not enforced. Throws kInvalidArgument with the place as a JSON
// pointer.
void check_json_schema(const OrderedJson& schema);

// Checks the schemas within a structural tag that the library reads, as check_json_schema() does,
// and the patterns of its formats for the faults that regex_fault() finds, at any depth.
void check_structural_tag(const OrderedJson& tag);

}  // namespace bl
