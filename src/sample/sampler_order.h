#pragma once
#include <string_view>
#include <vector>

#include "sample/sampling_params.h"
#include "sample/stages/gather.h"
#include "sample/stages/stage.h"

namespace bl {

// Plans the stages between the edits of logits and the draw, in the order of
// SamplingParams::sampler_order or, if that is empty, of README.md.

// How candidates are made: the work that is done while they are gathered, then `stages`.
struct StagePlan {
  GatherRules gather{};
  std::vector<const SamplerStage*> stages{};
  std::vector<std::string_view> names{};  // every stage that has something to do, in order
};
StagePlan plan_stages(const SamplingParams& params);

// Whether nothing runs but temperature, top-k, top-p and min-p, in this order.
bool is_common_order(const SamplingParams& params);

// Throws kInvalidArgument if sampler_order has an unknown or repeated name, lacks a stage that the
// parameters turn on, or is given together with temperature_last.
void check_sampler_order(const SamplingParams& params);

}  // namespace bl
