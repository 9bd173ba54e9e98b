#pragma once
#include <cstdint>
#include <vector>

#include "model/step_batch.h"
#include "nn/rope.h"
#include "nn/step_inputs.h"
#include "ops/backend.h"

namespace bl {

// Returns a copy of `values` in the step's scratch memory, on the backend.
const std::int32_t* upload_ints(ExecContext& ctx, Backend& backend,
                                const std::vector<std::int32_t>& values);

// Uploads what all layers of a step read: the positions, slots, spans and rope rows of its batch.
class BatchInputs {
 public:
  // Takes memory from ctx.scratch. `batch` must outlive this. Attention is not planned yet: the
  // caller does that after it has taken its own scratch, so that another plan can replace the
  // first.
  BatchInputs(ExecContext& ctx, Backend& backend, const RopeBank& ropes, const StepBatch& batch);
  BatchInputs(const BatchInputs&) = delete;
  BatchInputs& operator=(const BatchInputs&) = delete;

  StepInputs& step() { return step_; }

 private:
  std::vector<SequenceSpan> spans_;
  std::vector<StepInputs::RopeRows> ropes_;
  StepInputs step_;
};

// The adapters that apply to the rows of a batch, and to its rows of logits.
class BatchAdapters {
 public:
  explicit BatchAdapters(const StepBatch& batch);
  // Null if no row has an adapter.
  const StepAdapters* of_tokens() const { return tokens_.runs.empty() ? nullptr : &tokens_; }
  const StepAdapters* of_logits() const { return logits_.runs.empty() ? nullptr : &logits_; }

 private:
  StepAdapters tokens_;
  StepAdapters logits_;
};

}  // namespace bl
