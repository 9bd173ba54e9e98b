#pragma once
// What GEMVs of plain matrices are given, and what their kernels are launched with.

#include "backend/cuda/device/alignment.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

struct DenseGemvArgs {
  TensorView x;                // F32 [tokens, in]
  const void* rows = nullptr;  // [out, in]
  DType type = DType::kF16;
  TensorView out;               // F32 [tokens, out]
  const float* bias = nullptr;  // [out] or null
  float multiplier = 1.0f;
  bool accumulate = false;
};

struct PlainGemvLaunch {
  const float* x;
  std::int64_t x_stride;
  int in;
  float* out;
  std::int64_t out_stride;
  int columns;
  const float* bias;
  float multiplier;
  bool accumulate;
  bool aligned;  // rows and x start at multiples of 16 bytes
  int tokens;
};

// `element_bytes`: of a weight.
inline PlainGemvLaunch plain_gemv_launch(const DenseGemvArgs& args, int element_bytes) {
  PlainGemvLaunch p{args.x.as<const float>(),
                    args.x.row_stride,
                    static_cast<int>(args.x.columns()),
                    args.out.as<float>(),
                    args.out.row_stride,
                    static_cast<int>(args.out.columns()),
                    args.bias,
                    args.multiplier,
                    args.accumulate,
                    false,
                    static_cast<int>(args.x.rows())};
  p.aligned = is_aligned(args.rows, 16) && is_aligned(p.x, 16) && p.x_stride % 4 == 0 &&
              p.in % (16 / element_bytes) == 0;
  return p;
}

}  // namespace bl::cuda
