#pragma once
#include <vector>

#include "convert/block_model.h"
#include "convert/input_statistics.h"

namespace bl {

// One call of a block that conversion quantizes, with what all chunks that ran give it.
struct BlockCall {
  std::vector<const LinearSite*> readers{};
  InputStatistics inputs{};         // that the readers share
  std::vector<CallInput> routed{};  // of routed experts, per chunk
};

// Lets a pass over `block` collect its calls into `calls`, which are indexed by their numbers and
// grow as passes reach them. All three must outlive the plan.
CallPlan collecting_plan(Products& products, const ModelPart& block, std::vector<BlockCall>& calls);

}  // namespace bl
