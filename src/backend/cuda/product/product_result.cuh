#pragma once
// What becomes of the sums of a product.

#include "backend/cuda/product/piece_ring.cuh"

namespace bl::cuda {

// A group of strips whose sums are to be added up.
struct FinishedGroup {
  int matrix = 0;
  PieceStrips strips;
};

struct ResultPlace {
  int matrix;
  int token;
  int column;
};

// What is in the place of a result that is to be added to it; else 0.
__device__ __forceinline__ float earlier_result(const ResultPlace& at, const ProductArgs& args) {
  const ProductMatrix& m = args.matrices[at.matrix];
  if (!args.accumulate || m.fresh || at.column >= m.view.out) return 0.0f;
  const float there = m.out[(args.first_token + at.token) * m.out_stride + at.column];
  return m.rest != nullptr ? there + m.rest[at.column] : there;
}

// `gate` of a gated product is kept by the thread between the result of its first matrix and that
// of the second. earlier(place): what is there. kPlain: no biases, and what is gated is so by
// plain SiLU. Returns what is stored.
template <bool kPlain, class Earlier>
__device__ __forceinline__ float store_result(const ResultPlace& at, const ProductArgs& args,
                                              float& gate, float value, const Earlier& earlier) {
  const ProductMatrix& m = args.matrices[at.matrix];
  if (at.column >= m.view.out) return 0.0f;
  if (!kPlain && m.bias != nullptr) value += m.bias[at.column];
  if (args.gated && at.matrix == 0) {
    gate = value;
    return 0.0f;
  }
  float* to = m.out + (args.first_token + at.token) * m.out_stride + at.column;
  if (args.gated) {
    value = kPlain ? act<Activation::kSilu>(args.activation, gate) * value
                   : activated(args.activation, gate, value, true);
  }
  if (args.accumulate) value += earlier(to);
  *to = value;
  return value;
}
__device__ __forceinline__ float store_result(const ResultPlace& at, const ProductArgs& args,
                                              float& gate, float value) {
  return store_result<false>(at, args, gate, value, [](const float* to) { return *to; });
}

}  // namespace bl::cuda
