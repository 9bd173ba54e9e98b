#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/step_batch.h"
#include "nn/rope.h"
#include "nn/step_inputs.h"
#include "ops/backend.h"

namespace bl {

// The wanted rows of a step as a step of their own, whose keys the whole step has already written.
// In the last block, only these rows need queries.
class KeptStep {
 public:
  // Whether leaving out the other rows saves enough, and needs no larger plan than the step itself.
  static bool pays(const StepBatch& batch);

  // Takes memory from ctx.scratch, and replaces the attention plan of the step. `batch` must
  // outlive this. `step`: the inputs of all rows.
  KeptStep(ExecContext& ctx, Backend& backend, const RopeBank& ropes, const StepBatch& batch,
           const StepInputs& step);
  KeptStep(const KeptStep&) = delete;
  KeptStep& operator=(const KeptStep&) = delete;

  const StepInputs& inputs() const { return inputs_; }
  // Scratch bytes for this many wanted rows, without those of the backend's attention plan.
  static std::size_t work_bytes(std::span<const RopeSpec> ropes, std::int64_t rows);

 private:
  std::vector<SequenceSpan> spans_;
  std::vector<StepInputs::RopeRows> ropes_;
  StepInputs inputs_;
};

}  // namespace bl
