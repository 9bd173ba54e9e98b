#pragma once
// The parameters of all attention kernels, passed by value.

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
  __half* staged_out = nullptr;  // instead of out, F16; only in steps of prefill spans alone
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
  int group = 0;                        // query heads for each kv head
  const SpanEntry* spans = nullptr;     // the spans of this launch
  const std::int32_t* pages = nullptr;  // [spans][page_stride]
  int page_stride = 0;
  float scale = 1.0f;
  float softcap = 0.0f;
  int window = 0;
  const float* sinks = nullptr;
  const float* slopes = nullptr;
};

// Parameters of decode kernels that write the staged input of the next GEMM instead of `out`. They
// are separate instantiations, so that this costs the other kernels nothing.
struct StagedParams : AttentionParams {
  StagedFragments staged;
};

}  // namespace bl::cuda
