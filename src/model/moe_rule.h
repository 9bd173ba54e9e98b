#pragma once
#include <cstdint>

#include "model/arch_evaluator.h"
#include "model/arch_spec.h"

namespace bl {

// Whether a layer routes to experts instead of having an ordinary feed-forward.
bool layer_routes(const MoeRule& rule, const ArchEvaluator& at, std::int64_t layer);

}  // namespace bl
