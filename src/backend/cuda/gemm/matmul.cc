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

// Plain matrices of so many bytes are multiplied by cuBLASLt where dense_rows_matmul would read
// them more than once: output layers, mostly.
constexpr std::int64_t kLargeDenseBytes = 32 << 20;

// A few tokens times a plain matrix. cuBLASLt rounds activations to binary16, which holds them well
// enough beside weights of that type, as it does beside packed codes.
void plain_matmul(ExecContext& ctx, const MatmulArgs& args, const MatmulOutput& output) {
  const std::int64_t in = output.weight->in();
  const bool large = in * output.weight->out() * 2 >= kLargeDenseBytes;
  const std::int64_t library_from = cuda_ops_of(ctx).backend->launch_plan().library_from;
  if (args.x.rows() < library_from || ctx.deterministic || !large || in % 8 != 0 ||
      cuda_matrix(output.weight).dense()->type != DType::kF16) {
    dense_rows_matmul(ctx, args, output);
    return;
  }
  MatmulArgs one = args;
  one.outputs = {&output, 1};
  many_rows_matmul(ctx, one);
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

void matmul_of_normalised(ExecContext& ctx, const MatmulArgs& args) {
  NormArgs norm_args = *args.norm;
  const TensorView h = ctx.scratch->take_f32({args.x.rows(), 1, args.x.columns()});
  norm_args.x = args.x;
  norm_args.x.shape = h.shape;
  norm_args.out = h;
  norm(ctx, norm_args);
  MatmulArgs rest = args;
  rest.x = h;
  rest.x.shape = {args.x.rows(), args.x.columns()};
  rest.norm = nullptr;
  matmul(ctx, rest);
}

// Where a row's bits must not depend on the others, all rows take the kernels for a few.
void matmul_in_slices(ExecContext& ctx, const MatmulArgs& args) {
  BL_CHECK(args.half_x == nullptr);
  std::array<MatmulOutput, kMaxMatrices> outputs;
  BL_CHECK(args.outputs.size() <= outputs.size());
  for (std::int64_t first = 0; first < args.x.rows(); first += kMostPackedTokens) {
    const std::int64_t count = std::min(kMostPackedTokens, args.x.rows() - first);
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

bool takes_rests_in_one_launch(const ExecContext& ctx, const MatmulArgs& args) {
  return have_codes_of_one_kind(args) && (args.norm == nullptr || fuses_norm(args)) &&
         takes_rests(ctx, args);
}

void clear(const ExecContext& ctx, const TensorView& rows) {
  BL_CHECK(rows.dtype == DType::kF32 && rows.row_stride == rows.columns());
  const auto bytes = static_cast<std::size_t>(rows.shape.elements()) * sizeof(float);
  BL_CUDA_CHECK(cudaMemsetAsync(rows.data, 0, bytes, cuda_ops_of(ctx).stream));
}

// The same without rests: they are added where they belong before, and none is left.
void matmul_of_wholes(ExecContext& ctx, const MatmulArgs& args) {
  ArenaScope scope(*ctx.scratch);
  MatmulArgs whole = args;
  if (!args.x_rests.empty()) {
    whole.x = args.x_sum.empty() ? ctx.scratch->take_f32(args.x.shape) : args.x_sum;
    add_parts(ctx, {.to = whole.x, .from = args.x, .parts = args.x_rests});
    whole.x_rests = whole.x_sum = {};
  }
  if (!args.out_rests.empty()) {
    BL_CHECK(args.accumulate && args.outputs.size() == 1);
    const TensorView& out = args.outputs[0].out;
    add_parts(ctx, {.to = out, .from = out, .parts = args.out_rests});
    whole.out_rests = {};
  }
  whole.rests_out = {};
  matmul(ctx, whole);
  if (!args.rests_out.empty()) clear(ctx, args.rests_out);
}

void matmul_of_multiplied(ExecContext& ctx, const MatmulArgs& args) {
  activate(ctx, {.gate = args.x, .up = args.x_factor, .out = args.x, .kind = Activation::kNone});
  MatmulArgs rest = args;
  rest.x_factor = {};
  matmul(ctx, rest);
}

// The activation of the gate alone behind products.
void matmul_then_gate(ExecContext& ctx, const MatmulArgs& args) {
  MatmulArgs rest = args;
  rest.activation = nullptr;
  matmul(ctx, rest);
  ActivateArgs gate = *args.activation;
  gate.up = {};
  gate.out = gate.gate;
  activate(ctx, gate);
}

}  // namespace

void matmul(ExecContext& ctx, const MatmulArgs& args) {
  const std::int64_t tokens = (args.half_x != nullptr ? args.half_x->rows : args.x).rows();
  if (tokens == 0) return;
  if (!args.x_factor.empty() && !takes_factor(ctx, args)) {
    matmul_of_multiplied(ctx, args);
    return;
  }
  if (args.activation != nullptr && args.activation->product_left && !leaves_product(ctx, args)) {
    matmul_then_gate(ctx, args);
    return;
  }
  if (has_rests(args) && !takes_rests_in_one_launch(ctx, args)) {
    matmul_of_wholes(ctx, args);
    return;
  }
  if (ctx.deterministic && tokens > kMostPackedTokens) {
    matmul_in_slices(ctx, args);
    if (args.activation != nullptr) activate(ctx, *args.activation);
    return;
  }
  ArenaScope scope(*ctx.scratch);
  if (args.activation != nullptr) BL_CHECK(args.outputs.size() == 2);
  const bool few = std::none_of(
      args.outputs.begin(), args.outputs.end(),
      [&](const MatmulOutput& output) { return are_many_rows(ctx, *output.weight, tokens); });
  if (args.norm != nullptr && !(few ? fuses_norm(args) : many_rows_normalise(args))) {
    matmul_of_normalised(ctx, args);
    return;
  }
  if (!few) {
    many_rows_matmul(ctx, args);
    return;
  }
  if (args.activation != nullptr && (ctx.deterministic || !fuses_activation(args))) {
    MatmulArgs rest = args;
    rest.activation = nullptr;
    matmul(ctx, rest);
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
    if (count > 0) packed_matmul(ctx, args, {packed.data(), count});
  }
}

}  // namespace bl::cuda
