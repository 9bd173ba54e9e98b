#pragma once
#include <random>
#include <string>

#include "base/json.h"

namespace bl::test {

// A schema out of the common words: types, properties, required, items, counts, enum, const, anyOf,
// bounds of integers, lengths of texts.
Json random_schema(std::mt19937& random, int depth = 0);

// What about the value breaks the schema, of those words; empty where nothing does. Properties that
// the schema does not name break it (ConstraintSpec::strict).
std::string violation(const Json& schema, const Json& value);

}  // namespace bl::test
