#pragma once
// Products of a few tokens with packed codes: what a decode step consists of.

#include <cstdint>

#include "backend/cuda/code_matrix.h"
#include "backend/cuda/product_plan.h"
#include "ops/exec_context.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

inline constexpr int kMaxMatrices = 4;        // of one launch: q, k, v and a gate
inline constexpr int kMaxProductTokens = 16;  // of one launch
inline constexpr int kMaxStrips = 1 << 16;    // of one launch: 4 million columns

struct ProductMatrix {
  CodeMatrixView view;
  const std::uint32_t* fragments = nullptr;  // activations, as prepare() made them
  float* out = nullptr;                      // [tokens, view.out]
  std::int64_t out_stride = 0;               // elements
  const float* bias = nullptr;               // [view.out] or null
};

struct ProductArgs {
  ProductMatrix matrices[kMaxMatrices];
  int count = 0;
  int first_token = 0;                  // of the prepared rows, a multiple of 8
  int tokens = 0;                       // at most kMaxProductTokens
  const float* token_scales = nullptr;  // [all tokens]
  float multiplier = 1.0f;
  bool accumulate = false;
};

// Scratch of one launch.
std::size_t product_scratch_bytes(int multiprocessors);

// Enqueues it; matrices are all EXL2 or all GPTQ. `counters`: kMaxStrips zeroed ints, zero again
// afterwards.
void product(ExecContext& ctx, const ProductArgs& args, const ProductPlans::Entry& plan,
             std::int32_t* counters);

// Activations made ready for one matrix: gathered into its slots, divided by a power of two a
// token, so that binary16 holds any range.
struct PrepareTarget {
  const std::int32_t* channel_of_slot = nullptr;  // [units · 32], −1: nothing
  std::int32_t units = 0;
  std::uint32_t* fragments = nullptr;  // [tokens][units][16], see code_product.cuh
};

struct PrepareArgs {
  TensorView x;  // F32 [tokens, in]
  PrepareTarget targets[kMaxMatrices];
  int count = 0;
  float* token_scales = nullptr;  // [tokens] out
  // RMS norm on the way: weight F32 [in] or null for none, (1 + weight) with unit_offset.
  bool normalise = false;
  const float* norm_weight = nullptr;
  bool unit_offset = false;
  float eps = 0.0f;
};

void prepare(ExecContext& ctx, const PrepareArgs& args);

}  // namespace bl::cuda
