#pragma once
// Products of a few tokens with packed codes: what a decode step consists of.

#include <cstdint>

#include "backend/cuda/code_matrix.h"
#include "ops/exec_context.h"

namespace bl::cuda {

inline constexpr int kMaxMatrices = 4;        // of one launch: q, k, v and a gate
inline constexpr int kMaxProductTokens = 16;  // of one launch

// Activations made ready for the matrices of one launch (prepare.cu): gathered into each matrix's
// slots, divided by a power of two a token, so that binary16 holds any range.
struct PreparedInput {
  const std::uint32_t* fragments = nullptr;  // [tiles][8][units][16], see code_product.cuh
  const float* sums = nullptr;               // [tiles][units][8] Σx of each unit
};

struct ProductMatrix {
  CodeMatrixView view;
  PreparedInput input;
  float* out = nullptr;         // [tokens, view.out]
  std::int64_t out_stride = 0;  // elements
  const float* bias = nullptr;  // [view.out] or null
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

// Enqueues it. `counters`: zeroed ints, one a strip at least, zero again afterwards.
void product(ExecContext& ctx, const ProductArgs& args, std::int32_t* counters);

// One gather of activations: which channel feeds each slot.
struct PrepareTarget {
  const std::int32_t* channel_of_slot = nullptr;  // [units · 32], −1: nothing
  std::int32_t units = 0;
  std::uint32_t* fragments = nullptr;
  float* sums = nullptr;
};

struct PrepareArgs {
  TensorView x;  // F32 [tokens, in]
  PrepareTarget targets[kMaxMatrices];
  int count = 0;
  float* token_scales = nullptr;  // [tokens] out
};

void prepare(ExecContext& ctx, const PrepareArgs& args);

}  // namespace bl::cuda
