#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/step_batch.h"
#include "nn/rope.h"
#include "nn/step_inputs.h"
#include "ops/backend.h"

namespace bl {

// The wanted rows of a step as one of their own, behind the step that wrote its keys: all that the
// queries of a last block are needed of.
class KeptStep {
 public:
  // Whether there is enough to leave out, and no more to plan than for the step itself.
  static bool pays(const StepBatch& batch);

  // Memory is taken from ctx.scratch; the plan of the step's own attention ends here. `batch` must
  // live as long as this. `step`: the inputs of all of its rows.
  KeptStep(ExecContext& ctx, Backend& backend, const RopeBank& ropes, const StepBatch& batch,
           const StepInputs& step);
  KeptStep(const KeptStep&) = delete;
  KeptStep& operator=(const KeptStep&) = delete;

  const StepInputs& inputs() const { return inputs_; }
  // Scratch of so many wanted rows, without what the backend's plan takes.
  static std::size_t work_bytes(std::span<const RopeSpec> ropes, std::int64_t rows);

 private:
  std::vector<SequenceSpan> spans_;
  std::vector<StepInputs::RopeRows> ropes_;
  StepInputs inputs_;
};

}  // namespace bl
