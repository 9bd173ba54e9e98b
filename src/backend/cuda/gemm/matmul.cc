#include <algorithm>
#include <array>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/gemm/large/dense_gemv.h"
#include "backend/cuda/gemm/large/gemm_large.h"
#include "backend/cuda/gemm/packed_gemm.h"
#include "backend/cuda/gemm/splitk/reduce_partials.h"
#include "backend/cuda/scratch_plan.h"
#include "backend/cuda/weights/cuda_matrix.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

// Plain matrices of so many bytes are multiplied by cuBLASLt where dense_gemv_rows would read
// them more than once: output layers, mostly.
constexpr std::int64_t kLargeDenseBytes = 32 << 20;

// A few tokens times a plain matrix. cuBLASLt rounds activations to binary16, which holds them well
// enough beside weights of that type, as it does beside packed codes.
void plain_matmul(ExecContext& ctx, const MatmulArgs& args, const MatmulOutput& output) {
  const std::int64_t in = output.weight->in();
  const bool large = in * output.weight->out() * 2 >= kLargeDenseBytes;
  const std::int64_t dense_library_from =
      cuda_ops_of(ctx).backend->launch_plan().dense_library_from;
  if (args.x.rows() < dense_library_from || ctx.deterministic || !large || in % 8 != 0 ||
      cuda_matrix(output.weight).dense()->type != DType::kF16) {
    dense_gemv_rows(ctx, args, output);
    return;
  }
  MatmulArgs one = args;
  one.outputs = {&output, 1};
  gemm_large(ctx, one);
}

bool all_have_codes(const MatmulArgs& args) {
  return args.outputs.size() <= kMaxMatrices &&
         std::all_of(args.outputs.begin(), args.outputs.end(), has_codes);
}

// EXL2, or GPTQ.
bool have_codes_of_one_kind(const MatmulArgs& args) {
  return all_have_codes(args) &&
         std::all_of(args.outputs.begin(), args.outputs.end(), [&](const MatmulOutput& output) {
           return is_exl2(output.weight) == is_exl2(args.outputs[0].weight);
         });
}

// A few tokens: the norm goes into the launch that makes the activations ready where every matrix
// has codes; elsewhere it is a launch of its own.
bool fuses_norm(const MatmulArgs& args) {
  return args.norm->kind == NormKind::kRms && args.norm->bias.empty() && all_have_codes(args);
}

// And the activation into the product of gate and up.
bool fuses_activation(const MatmulArgs& args) { return have_codes_of_one_kind(args); }

void matmul_with_norm(ExecContext& ctx, const MatmulArgs& args) {
  NormArgs norm_args = *args.norm;
  const TensorView h = ctx.scratch->take_f32({args.x.rows(), 1, args.x.columns()});
  norm_args.x = args.x;
  norm_args.x.shape = h.shape;
  norm_args.out = h;
  norm(ctx, norm_args);
  MatmulArgs core = args;
  core.x = h;
  core.x.shape = {args.x.rows(), args.x.columns()};
  core.norm = nullptr;
  matmul(ctx, core);
}

// Where a row's bits must not depend on the others, all rows take the kernels for a few.
void matmul_in_slices(ExecContext& ctx, const MatmulArgs& args) {
  BL_CHECK(args.staged_x == nullptr);
  std::array<MatmulOutput, kMaxMatrices> outputs;
  BL_CHECK(args.outputs.size() <= outputs.size());
  for (std::int64_t first = 0; first < args.x.rows(); first += kMaxPackedTokens) {
    const std::int64_t count = std::min(kMaxPackedTokens, args.x.rows() - first);
    MatmulArgs part = args;
    part.x = slice_rows(args.x, first, count);
    for (std::size_t i = 0; i < args.outputs.size(); ++i) {
      outputs[i] = args.outputs[i];
      outputs[i].out = slice_rows(outputs[i].out, first, count);
    }
    part.outputs = std::span(outputs.data(), args.outputs.size());
    part.activation = nullptr;
    matmul(ctx, part);
  }
}

bool takes_partials_in_one_launch(const ExecContext& ctx, const MatmulArgs& args) {
  return have_codes_of_one_kind(args) && (args.norm == nullptr || fuses_norm(args)) &&
         can_take_partials(ctx, args);
}

void clear(const ExecContext& ctx, const TensorView& rows) {
  BL_CHECK(rows.dtype == DType::kF32 && rows.row_stride == rows.columns());
  const auto bytes = static_cast<std::size_t>(rows.shape.elements()) * sizeof(float);
  BL_CUDA_CHECK(cudaMemsetAsync(rows.data, 0, bytes, cuda_ops_of(ctx).stream));
}

// The same without rests: they are added where they belong before, and none is left.
void matmul_with_partials(ExecContext& ctx, const MatmulArgs& args) {
  ArenaScope scope(*ctx.scratch);
  MatmulArgs whole = args;
  if (!args.x_partials.empty()) {
    whole.x = args.x_sum.empty() ? ctx.scratch->take_f32(args.x.shape) : args.x_sum;
    reduce_partials(ctx, {.to = whole.x, .from = args.x, .partials = args.x_partials});
    whole.x_partials = whole.x_sum = {};
  }
  if (!args.out_partials.empty()) {
    BL_CHECK(args.accumulate && args.outputs.size() == 1);
    const TensorView& out = args.outputs[0].out;
    reduce_partials(ctx, {.to = out, .from = out, .partials = args.out_partials});
    whole.out_partials = {};
  }
  whole.partials_out = {};
  matmul(ctx, whole);
  if (!args.partials_out.empty()) clear(ctx, args.partials_out);
}

void matmul_with_deferred_mul(ExecContext& ctx, const MatmulArgs& args) {
  activate(ctx,
           {.gate = args.x, .up = args.x_deferred_mul, .out = args.x, .kind = Activation::kNone});
  MatmulArgs core = args;
  core.x_deferred_mul = {};
  matmul(ctx, core);
}

// The activation of the gate alone behind products.
void matmul_then_gate(ExecContext& ctx, const MatmulArgs& args) {
  MatmulArgs core = args;
  core.activation = nullptr;
  matmul(ctx, core);
  ActivateArgs gate = *args.activation;
  gate.up = {};
  gate.out = gate.gate;
  activate(ctx, gate);
}

}  // namespace

void matmul(ExecContext& ctx, const MatmulArgs& args) {
  const std::int64_t tokens = (args.staged_x != nullptr ? args.staged_x->rows : args.x).rows();
  if (tokens == 0) return;
  if (!args.x_deferred_mul.empty() && !can_apply_deferred_mul(ctx, args)) {
    matmul_with_deferred_mul(ctx, args);
    return;
  }
  if (args.activation != nullptr && args.activation->deferred_gate_mul &&
      !can_defer_gate_mul(ctx, args)) {
    matmul_then_gate(ctx, args);
    return;
  }
  if (has_partials(args) && !takes_partials_in_one_launch(ctx, args)) {
    matmul_with_partials(ctx, args);
    return;
  }
  if (ctx.deterministic && tokens > kMaxPackedTokens) {
    matmul_in_slices(ctx, args);
    if (args.activation != nullptr) activate(ctx, *args.activation);
    return;
  }
  ArenaScope scope(*ctx.scratch);
  if (args.activation != nullptr) BL_CHECK(args.outputs.size() == 2);
  const bool few = std::none_of(
      args.outputs.begin(), args.outputs.end(),
      [&](const MatmulOutput& output) { return is_large(ctx, *output.weight, tokens); });
  if (args.norm != nullptr && !(few ? fuses_norm(args) : large_can_fuse_norm(args))) {
    matmul_with_norm(ctx, args);
    return;
  }
  if (!few) {
    gemm_large(ctx, args);
    return;
  }
  if (args.activation != nullptr && (ctx.deterministic || !fuses_activation(args))) {
    MatmulArgs core = args;
    core.activation = nullptr;
    matmul(ctx, core);
    activate(ctx, *args.activation);
    return;
  }
  for (const MatmulOutput& output : args.outputs) {
    if (!has_codes(output)) plain_matmul(ctx, args, output);
  }
  for (const bool exl2 : {true, false}) {
    std::array<const MatmulOutput*, kMaxMatrices> packed{};
    std::size_t count = 0;
    for (const MatmulOutput& output : args.outputs) {
      if (!has_codes(output) || is_exl2(output.weight) != exl2) continue;
      BL_CHECK(count < packed.size());
      packed[count++] = &output;
    }
    if (count > 0) packed_gemm(ctx, args, {packed.data(), count});
  }
}

}  // namespace bl::cuda
