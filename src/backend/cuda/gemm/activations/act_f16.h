#pragma once
#include <span>

#include "ops/elementwise.h"
#include "ops/exec_context.h"
#include "ops/half_input.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

// Where rows of 16-bit activations for a matrix multiplication go, and in which order.
struct Rows16 {
  void* rows = nullptr;                           // [tokens, slots]
  const std::int32_t* channel_of_slot = nullptr;  // [slots], −1: 0; null: channels as they are
  std::int64_t slots = 0;                         // even
  DType type = DType::kF16;  // kF16: divided by a power of two, so that nothing overflows; or kBF16
};

// Rows of x as they are.
struct Rows16Args {
  TensorView x;  // F32 [tokens, in]
  Rows16 to;
  float multiplier = 1.0f;
  float* alpha = nullptr;        // out, device: multiplier times that power
  float* row_largest = nullptr;  // of find_largest; make_rows16 of kF16 only
};

void make_rows16(ExecContext& ctx, const Rows16Args& args);

// row_largest [tokens] of those rows: needed once for all matrices that read the same x.
void find_largest(ExecContext& ctx, const TensorView& x, float* row_largest);

// What kernels that hold a row of `in` halves in shared memory can take.
bool stages_rows16(int compute_capability, std::int64_t in, std::int64_t slots);

// Rows of norm(x), each of them in as many orders as matrices read it in.
struct NormRows16Args {
  TensorView x;                // F32 [tokens, in]
  std::span<const Rows16> to;  // 1 to kMaxMatrices, of one type
  float multiplier = 1.0f;
  float* alpha = nullptr;  // out, device: multiplier times a power of two, the same for all
};
// One kernel, since a norm bounds what it gives; where takes_norm_rows16 says so. The norm's own x
// and out are not used.
void make_norm_rows16(ExecContext& ctx, const NormRows16Args& args, const NormArgs& norm);
bool takes_norm_rows16(const TensorView& x, const NormArgs& norm);

// act(gate) · up → args.half_out, which is staged. `halves`: gate and up are binary16, kHalfGate
// times what they mean.
struct ActivationRows16Args {
  const void* gate = nullptr;
  const void* up = nullptr;      // or null
  std::int64_t gate_stride = 0;  // elements
  std::int64_t up_stride = 0;
  bool halves = false;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  Rows16 to;
  float* power = nullptr;        // out, device
  float* row_largest = nullptr;  // [tokens] scratch
};
// Products up to 2^20 pass through binary16 so.
inline constexpr float kHalfGate = 0.0625f;
void make_activation_rows16(ExecContext& ctx, const ActivationRows16Args& args,
                            const ActivateArgs& activation);

// Contiguous F16 [tokens, in] into the places of `to`; *power = 1.
void gather_rows16(ExecContext& ctx, const TensorView& halves, const Rows16& to, float* power);

// *alpha = *power · multiplier.
void multiply_power(ExecContext& ctx, const float* power, float multiplier, float* alpha);

// out [tokens, columns] += bias [columns].
void add_bias(ExecContext& ctx, const TensorView& out, const float* bias);

}  // namespace bl::cuda
