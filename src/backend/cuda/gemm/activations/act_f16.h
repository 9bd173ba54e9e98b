#pragma once
#include <span>

#include "ops/elementwise.h"
#include "ops/exec_context.h"
#include "ops/half_input.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

// Where rows of 16-bit activations for a matrix multiplication go, and in which order.
struct ActF16 {
  void* rows = nullptr;                        // [tokens, slots]
  const std::int32_t* feature_of_k = nullptr;  // [slots], −1: 0; null: channels as they are
  std::int64_t k = 0;                          // even
  DType type = DType::kF16;  // kF16: divided by a power of two, so that nothing overflows; or kBF16
};

// Rows of x as they are.
struct ActF16Args {
  TensorView x;  // F32 [tokens, in]
  ActF16 to;
  float multiplier = 1.0f;
  float* out_scale = nullptr;    // out, device: multiplier times that power
  float* row_largest = nullptr;  // of find_largest; make_act_f16 of kF16 only
};

void make_act_f16(ExecContext& ctx, const ActF16Args& args);

// row_largest [tokens] of those rows: needed once for all matrices that read the same x.
void find_largest(ExecContext& ctx, const TensorView& x, float* row_largest);

// What kernels that hold a row of `in` halves in shared memory can take.
bool fits_act_f16_smem(int compute_capability, std::int64_t in, std::int64_t k);

// Rows of norm(x), each of them in as many orders as matrices read it in.
struct ActF16NormArgs {
  TensorView x;                // F32 [tokens, in]
  std::span<const ActF16> to;  // 1 to kMaxMatrices, of one type
  float multiplier = 1.0f;
  float* out_scale = nullptr;  // out, device: multiplier times a power of two, the same for all
};
// One kernel, since a norm bounds what it gives; where can_fuse_norm_act_f16 says so. The norm's
// own x and out are not used.
void make_act_f16_norm(ExecContext& ctx, const ActF16NormArgs& args, const NormArgs& norm);
bool can_fuse_norm_act_f16(const TensorView& x, const NormArgs& norm);

// act(gate) · up → args.staged_out, which is staged. `halves`: gate and up are binary16, kHalfGate
// times what they mean.
struct ActF16ActivateArgs {
  const void* gate = nullptr;
  const void* up = nullptr;      // or null
  std::int64_t gate_stride = 0;  // elements
  std::int64_t up_stride = 0;
  bool halves = false;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  ActF16 to;
  float* act_scale = nullptr;    // out, device
  float* row_largest = nullptr;  // [tokens] scratch
};
// Products up to 2^20 pass through binary16 so.
inline constexpr float kHalfGate = 0.0625f;
void make_act_f16_activate(ExecContext& ctx, const ActF16ActivateArgs& args,
                           const ActivateArgs& activation);

// Contiguous F16 [tokens, in] into the places of `to`; *power = 1.
void gather_act_f16(ExecContext& ctx, const TensorView& halves, const ActF16& to, float* act_scale);

// *alpha = *power · multiplier.
void multiply_act_scale(ExecContext& ctx, const float* act_scale, float multiplier,
                        float* out_scale);

// out [tokens, columns] += bias [columns].
void add_bias(ExecContext& ctx, const TensorView& out, const float* bias);

}  // namespace bl::cuda
