#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/arch_evaluator.h"
#include "model/arch_spec.h"

namespace bl {

// Returns the type of each layer ("full_attention", "sliding_attention", …): config.json's list, or
// what the first applicable rule of the architecture gives. Throws kUnsupported for a type that the
// architecture does not describe.
std::vector<std::string> layer_types(const ArchSpec& arch, const ArchEvaluator& at,
                                     std::int64_t layers);

}  // namespace bl
