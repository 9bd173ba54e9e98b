#pragma once
#include <span>

#include "ops/elementwise.h"
#include "ops/exec_context.h"
#include "ops/staged_input.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

// Dynamic shared memory that a kernel may use without opting in, beside its static part; and the
// most that these kernels use when they opt in.
inline constexpr std::int64_t kPlainSmemBytes = (48 << 10) - 64;
inline constexpr std::int64_t kMostSmemBytes = 96 << 10;
// The most features of a row that make_act_f16_norm() can hold.
inline constexpr std::int64_t kWidestNormedRow = 8192;

// 16-bit activations for a large GEMM: their memory and their order along K.
struct ActF16 {
  void* rows = nullptr;  // [tokens, k]
  // [k], −1: zero. Null: features are in their own order.
  const std::int32_t* feature_of_k = nullptr;
  std::int64_t k = 0;  // even
  // kF16: rows are divided by one power of two, so that nothing overflows; or kBF16.
  DType type = DType::kF16;
};

// Returns the order and type in which a matrix reads its rows, without memory for them. For
// matrices with codes or of 16 bits.
ActF16 act_f16_for(const PackedMatrix* weight);
// Whether a matrix reads 16-bit rows in a large GEMM.
bool reads_act_f16(const PackedMatrix* weight);
// Rows of x, converted without a norm.
struct ActF16Args {
  TensorView x;  // F32 [tokens, in]
  ActF16 to;
  float multiplier = 1.0f;
  float* out_scale = nullptr;    // out, device: multiplier · the power of two
  float* row_largest = nullptr;  // from find_largest(); for kF16 only
};

void make_act_f16(ExecContext& ctx, const ActF16Args& args);

// Writes the largest |x| of each row to row_largest [tokens]; once for all matrices that read this
// x.
void find_largest(ExecContext& ctx, const TensorView& x, float* row_largest);

// Whether kernels can hold a row of `in` halves in shared memory and write `k` of them.
bool fits_act_f16_smem(int compute_capability, std::int64_t in, std::int64_t k);

// Rows of norm(x), in every order in which matrices read them.
struct ActF16NormArgs {
  TensorView x;                // F32 [tokens, in]
  std::span<const ActF16> to;  // 1 to kMaxMatrices, of one type
  float multiplier = 1.0f;
  // Out, device: multiplier · the power of two, which is the same for all.
  float* out_scale = nullptr;
};
// A single kernel, since a norm bounds its results. Requires can_fuse_norm_act_f16(). The norm's
// own x and out are not used.
void make_act_f16_norm(ExecContext& ctx, const ActF16NormArgs& args, const NormArgs& norm);
bool can_fuse_norm_act_f16(const TensorView& x, const NormArgs& norm);

// act(gate) · up into the activation's staged_out. `halves`: gate and up are binary16 and
// multiplied by kHalfGate.
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
// Lets values up to 2^20 pass through binary16.
inline constexpr float kHalfGate = 0.0625f;
void make_act_f16_activate(ExecContext& ctx, const ActF16ActivateArgs& args,
                           const ActivateArgs& activation);

// Permutes contiguous F16 rows [tokens, in] into the order of `to`; *act_scale = 1.
void gather_act_f16(ExecContext& ctx, const TensorView& halves, const ActF16& to, float* act_scale);

// *out_scale = *act_scale · multiplier.
void multiply_act_scale(ExecContext& ctx, const float* act_scale, float multiplier,
                        float* out_scale);

// out [tokens, columns] += bias [columns].
void add_bias(ExecContext& ctx, const TensorView& out, const float* bias);

}  // namespace bl::cuda
