#pragma once
#include <cstdint>
#include <span>

#include "ops/attention.h"
#include "ops/exec_context.h"
#include "ops/kv_layout.h"
#include "tensor/tensor_view.h"

namespace bl {

// What the layers of one step share, in the memory of the backend. Made once a step by the model.
struct StepInputs {
  // One rope table of the model as this step sees it.
  struct RopeRows {
    TensorView inv_freq;                    // F32 [variants, rotated / 2]
    TensorView scale;                       // F32 [variants]
    const std::int32_t* variant = nullptr;  // [tokens]: row of inv_freq
  };
  std::int64_t tokens = 0;
  const std::int32_t* positions = nullptr;  // [tokens]
  const std::int64_t* slots = nullptr;      // [tokens]
  std::span<const SequenceSpan> sequences;
  const AttentionPlan* attention = nullptr;  // of these sequences
  std::span<const RopeRows> ropes;           // one a rope table of the model
  const PagedKvView* kv = nullptr;           // of the block that runs
  // Some span sees keys that another one of the step brings: all are written before any is read.
  bool keys_first = false;
  // Keys and values of its tokens are in the pages already: it is of queries alone, without slots.
  bool keys_written = false;
  const AttentionArgs* next_attention = nullptr;  // of the block behind, or null
  NextWeights next_weights;                       // what is read first behind the block
};

struct StepAdapters;

// The rows of a step that somebody reads behind its last block. Of a long prompt that is one: all
// that the others leave behind are their keys and values.
struct KeptRows {
  const std::int32_t* rows = nullptr;      // [x.rows()], in the backend's memory, ascending
  TensorView x;                            // F32 [kept, hidden]: where the block leaves them
  const StepAdapters* adapters = nullptr;  // of these rows; null: none
  // These rows as a step that finds its keys written: no others are queries. Null: all are.
  const StepInputs* step = nullptr;
};

}  // namespace bl
