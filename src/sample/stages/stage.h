#pragma once
#include <string_view>

#include "sample/pick_args.h"
#include "sample/sample_row.h"
#include "sample/sampling_params.h"

namespace bl {

// One stage of the chain: it edits the row's logits or changes its candidates.
//
// A stage reads the parameters and the request's state and changes only the row. After a stage that
// works on candidates, at least one is left, ids ascend, and `mass` is the sum of the weights.
struct SamplerStage {
  std::string_view name;
  // Whether the stage has something to do with these parameters, for some arguments.
  bool (*wanted)(const SamplingParams& params);
  void (*apply)(const SamplingParams& params, const SamplerState& state, SampleRow& row);
};

}  // namespace bl
