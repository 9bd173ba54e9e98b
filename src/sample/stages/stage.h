#pragma once
#include <string_view>

#include "sample/pick_args.h"
#include "sample/sample_row.h"
#include "sample/sampling_params.h"

namespace bl {

// One named piece of the chain: an edit of the row's logits, or a change of its candidates.
//
// A stage reads the parameters and the request's state and changes nothing but the row. After a
// stage that works on candidates, at least one is left, ids ascend, and `mass` is the sum of the
// weights.
struct SamplerStage {
  std::string_view name;
  // Whether these parameters (with any arguments) give the stage something to do.
  bool (*wanted)(const SamplingParams& params);
  void (*apply)(const SamplingParams& params, const SamplerState& state, SampleRow& row);
};

}  // namespace bl
