#pragma once
#include <span>

#include "ops/elementwise.h"
#include "ops/exec_context.h"
#include "ops/staged_input.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

// Dynamic shared memory that a kernel may take without opting in, beside its static part; and what
// a kernel that opts in takes at most here.
inline constexpr std::int64_t kPlainSmemBytes = (48 << 10) - 64;
inline constexpr std::int64_t kMostSmemBytes = 96 << 10;
inline constexpr std::int64_t kWidestNormedRow = 8192;  // features that make_act_f16_norm() holds

// 16-bit activations for a large GEMM: where they go, and in which order of features.
struct ActF16 {
  void* rows = nullptr;                        // [tokens, k]
  const std::int32_t* feature_of_k = nullptr;  // [k], −1: zero; null: features in their own order
  std::int64_t k = 0;                          // even
  DType type = DType::kF16;  // kF16: divided by a power of two, so that nothing overflows; or kBF16
};

// The order and type in which a matrix reads binary16 rows, without memory for them. For matrices
// with codes or of 16 bits.
ActF16 act_f16_for(const PackedMatrix* weight);
// Whether a matrix reads 16-bit rows in a large GEMM.
bool reads_act_f16(const PackedMatrix* weight);
// Rows of x as they are.
struct ActF16Args {
  TensorView x;  // F32 [tokens, in]
  ActF16 to;
  float multiplier = 1.0f;
  float* out_scale = nullptr;    // out, device: multiplier times the power of two
  float* row_largest = nullptr;  // what find_largest() found; for kF16 only
};

void make_act_f16(ExecContext& ctx, const ActF16Args& args);

// The largest |x| of each row into row_largest [tokens]; once for all matrices that read the same
// x.
void find_largest(ExecContext& ctx, const TensorView& x, float* row_largest);

// Whether kernels can hold a row of `in` halves in shared memory and write `k` of them.
bool fits_act_f16_smem(int compute_capability, std::int64_t in, std::int64_t k);

// Rows of norm(x), each in all orders in which matrices read it.
struct ActF16NormArgs {
  TensorView x;                // F32 [tokens, in]
  std::span<const ActF16> to;  // 1 to kMaxMatrices, of one type
  float multiplier = 1.0f;
  float* out_scale = nullptr;  // out, device: multiplier times a power of two, the same for all
};
// One kernel makes them, since a norm bounds its results, where can_fuse_norm_act_f16() says so.
// The norm's own x and out are not used.
void make_act_f16_norm(ExecContext& ctx, const ActF16NormArgs& args, const NormArgs& norm);
bool can_fuse_norm_act_f16(const TensorView& x, const NormArgs& norm);

// act(gate) · up into the activation's staged_out. `halves`: gate and up are binary16, kHalfGate
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
// So that products up to 2^20 pass through binary16.
inline constexpr float kHalfGate = 0.0625f;
void make_act_f16_activate(ExecContext& ctx, const ActF16ActivateArgs& args,
                           const ActivateArgs& activation);

// Puts contiguous F16 rows [tokens, in] into the order of `to`; *act_scale = 1.
void gather_act_f16(ExecContext& ctx, const TensorView& halves, const ActF16& to, float* act_scale);

// *out_scale = *act_scale · multiplier.
void multiply_act_scale(ExecContext& ctx, const float* act_scale, float multiplier,
                        float* out_scale);

// out [tokens, columns] += bias [columns].
void add_bias(ExecContext& ctx, const TensorView& out, const float* bias);

}  // namespace bl::cuda
