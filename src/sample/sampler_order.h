#pragma once
#include <string_view>
#include <vector>

#include "sample/sampling_params.h"
#include "sample/stages/gather.h"
#include "sample/stages/stage.h"

namespace bl {

// The stages between the edits of logits and the draw, in the order of
// SamplingParams::sampler_order or, where that is empty, of README.md.

// What makes candidates of a row: what is done while they are gathered, then `stages`.
struct StagePlan {
  GatherRules gather{};
  std::vector<const SamplerStage*> stages{};
  std::vector<std::string_view> names{};  // of all that have something to do, in order
};
StagePlan plan_stages(const SamplingParams& params);

// Whether nothing runs but temperature, top-k, top-p and min-p, in this order.
bool is_common_order(const SamplingParams& params);

// Throws kInvalidArgument where sampler_order has a name that is none or stands there twice, or
// does not have a stage that the parameters turn on, or temperature_last is set beside it.
void check_sampler_order(const SamplingParams& params);

}  // namespace bl
