#pragma once
#include <cstdint>
#include <span>

#include "ops/attention.h"
#include "ops/exec_context.h"
#include "ops/kv_layout.h"
#include "tensor/tensor_view.h"

namespace bl {

// The inputs that all layers of a step share, in the backend's memory. The model makes them once
// per step.
struct StepInputs {
  // One rope table of the model, as this step uses it.
  struct RopeRows {
    TensorView inv_freq;                    // F32 [variants, rotated / 2]
    TensorView scale;                       // F32 [variants]
    const std::int32_t* variant = nullptr;  // [tokens]: row of inv_freq and scale
  };
  std::int64_t tokens = 0;
  const std::int32_t* positions = nullptr;  // [tokens]
  const std::int64_t* slots = nullptr;      // [tokens]
  std::span<const SequenceSpan> sequences;
  const AttentionPlan* attention = nullptr;  // made for these sequences
  std::span<const RopeRows> ropes;           // one per rope table of the model
  const PagedKvView* kv = nullptr;           // pages of the block that is running
  // Some span reads keys that another span of this step writes, so all must be written before any
  // is read.
  bool keys_first = false;
  // The keys and values of the step's tokens are already in the pages. Only queries are computed,
  // and there are no slots.
  bool keys_written = false;
  const AttentionArgs* next_attention = nullptr;  // attention of the next block, or null
  NextWeights next_weights;  // the matrices that are read first after this block
};

struct StepAdapters;

// The rows of a step that are read after the last block. For a long prompt that is one row; the
// others leave only keys and values.
struct KeptRows {
  const std::int32_t* rows = nullptr;      // [x.rows()], in the backend's memory, ascending
  TensorView x;                            // F32 [kept, hidden]; the block's output goes here
  const StepAdapters* adapters = nullptr;  // of these rows; null: none
  // The kept rows as a step with keys_written, so that only they have queries. Null: all rows have
  // queries.
  const StepInputs* step = nullptr;
};

}  // namespace bl
