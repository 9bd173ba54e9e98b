#pragma once
// What all attention kernels get, as they get it.

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/attention/attention_plan.h"
#include "backend/cuda/attention/kv_row_code.h"
#include "backend/cuda/gemm/activations/staged_input.h"

namespace bl::cuda {

struct AttentionParams {
  const float* q = nullptr;      // [tokens, heads, k_dim]
  float* out = nullptr;          // [tokens, heads, v_dim]
  __half* staged_out = nullptr;  // in place of out, where a step has prefill spans alone
  std::int64_t q_stride = 0;
  std::int64_t out_stride = 0;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  std::int64_t k_page_bytes = 0;
  std::int64_t v_page_bytes = 0;
  std::int64_t cache_pages = 0;
  RowShape k_row;
  RowShape v_row;
  int kv_heads = 0;
  int group = 0;                        // query heads of a kv head
  const SpanEntry* spans = nullptr;     // of this launch
  const std::int32_t* pages = nullptr;  // [spans][page_stride]
  int page_stride = 0;
  float scale = 1.0f;
  float softcap = 0.0f;
  int window = 0;
  const float* sinks = nullptr;
  const float* slopes = nullptr;
};

// Of decode kernels that leave their results for the next product, in place of `out`: kernels of
// their own, so that this costs the others nothing.
struct LeavingParams : AttentionParams {
  StagedFragments left;
};

}  // namespace bl::cuda
