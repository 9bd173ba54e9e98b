#pragma once
#include <cstdint>
#include <vector>

#include "model/step_batch.h"
#include "nn/rope.h"
#include "nn/step_inputs.h"
#include "ops/backend.h"

namespace bl {

// A copy of `values` in scratch memory of this step.
const std::int32_t* upload_ints(ExecContext& ctx, Backend& backend,
                                const std::vector<std::int32_t>& values);

// What the layers of a step read, in the backend's memory, made of the step's batch.
class BatchInputs {
 public:
  // Takes memory from ctx.scratch. `batch` must outlive this. The plan of attention is the caller's
  // to make: it is the last thing taken, so that another may take its place.
  BatchInputs(ExecContext& ctx, Backend& backend, const RopeBank& ropes, const StepBatch& batch);
  BatchInputs(const BatchInputs&) = delete;
  BatchInputs& operator=(const BatchInputs&) = delete;

  StepInputs& step() { return step_; }

 private:
  std::vector<SequenceSpan> spans_;
  std::vector<StepInputs::RopeRows> ropes_;
  StepInputs step_;
};

// The adapters of a batch's rows, and those of its rows of logits.
class BatchAdapters {
 public:
  explicit BatchAdapters(const StepBatch& batch);
  // Null where no row has any.
  const StepAdapters* of_tokens() const { return tokens_.runs.empty() ? nullptr : &tokens_; }
  const StepAdapters* of_logits() const { return logits_.runs.empty() ? nullptr : &logits_; }

 private:
  StepAdapters tokens_;
  StepAdapters logits_;
};

}  // namespace bl
