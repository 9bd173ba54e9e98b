#pragma once
// What becomes of the sums of a product.

#include "backend/cuda/piece_ring.cuh"

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

// `gate` of a gated product is kept by the thread between the result of its first matrix and that
// of the second.
__device__ __forceinline__ void store_result(const ResultPlace& at, const ProductArgs& args,
                                             float& gate, float value) {
  const ProductMatrix& m = args.matrices[at.matrix];
  if (at.column >= m.view.out) return;
  if (m.bias != nullptr) value += m.bias[at.column];
  if (args.gated && at.matrix == 0) {
    gate = value;
    return;
  }
  float* to = m.out + (args.first_token + at.token) * m.out_stride + at.column;
  if (args.gated) value = activated(args.activation, gate, value, true);
  *to = args.accumulate ? *to + value : value;
}

}  // namespace bl::cuda
