#pragma once
#include <string>

#include "model/load_planner.h"
#include "nn/moe.h"

namespace bl {

struct ExpertPlanArgs {
  const MoeSpec& spec;
  const MoeArch& arch;
};

// Plans the routed experts of a block below `at`: one set of linears each, or parts of stacked
// tensors. Where gate and up are fused, kUp is both and there is no kGate.
void plan_experts(LoadPlanner& planner, std::int32_t block, const std::string& at,
                  const ExpertPlanArgs& args);

}  // namespace bl
