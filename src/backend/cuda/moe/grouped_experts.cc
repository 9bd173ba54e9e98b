#include "backend/cuda/moe/grouped_experts.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/device/arena_sizes.h"
#include "backend/cuda/device/cuda_device.h"
#include "backend/cuda/gemm/activations/act_f16.h"
#include "backend/cuda/gemm/wgmma/gemm_wgmma_dequant.h"
#include "backend/cuda/gemm/wgmma/gemm_wgmma_grouped.h"
#include "backend/cuda/moe/expert_kernels.h"
#include "backend/cuda/moe/expert_scratch.h"
#include "backend/cuda/moe/grouped_rows.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

using Matrices = CudaExperts::Matrices;

// Average rows of a chosen expert from which on grouped GEMMs are faster
// (bench/ladder/moe_prefill.md).
constexpr std::int64_t kFewestGroupedRows = 20;

constexpr std::int64_t kTileInts = sizeof(WgmmaRowTile) / sizeof(std::int32_t);

// What of a call depends on the matrices and the number of tokens alone.
struct ExpertShape {
  const Matrices& gate;
  const Matrices& up;
  const Matrices& down;
  std::int64_t choices;
  std::int32_t tile_rows;
  std::int64_t row_tiles;  // at most
  bool gated;
  bool activates;  // the activation is in the epilogue of gate and up
  bool gathers;    // its rows are permuted for down afterwards
  std::int64_t in_k;
  std::int64_t hidden_k;

  ExpertShape(const ExpertsArgs& args, const CudaExperts& experts, std::int64_t tokens)
      : gate(experts.matrices(CudaExperts::kGate)),
        up(experts.matrices(CudaExperts::kUp)),
        down(experts.matrices(CudaExperts::kDown)),
        choices(tokens * args.k),
        tile_rows(choose_tile_rows(choices, std::min(choices, experts.count()))),
        row_tiles(most_row_tiles(choices, experts.count(), tile_rows)),
        gated(args.fused_gate_up || gate.table != nullptr),
        activates(gate.table != nullptr && experts.one_permutation() && !gate.has_bias &&
                  !up.has_bias && args.intermediate % kNTileColumns == 0 &&
                  can_fuse_activation(activation_parameters(args.activation))),
        gathers(activates && !down.is_identity),
        in_k(std::int64_t{std::max(gate.k_steps, up.k_steps)} * kKStepSize),
        hidden_k(std::int64_t{down.k_steps} * kKStepSize) {}

  std::int64_t input_rows() const {
    return activates || gate.table == nullptr ? choices : 2 * choices;
  }
  std::int64_t first_stride() const { return ExpertScratch::rounded(gate.out + up.out); }
  std::int64_t out_stride() const { return ExpertScratch::rounded(down.out); }
};

WgmmaGroupedArgs gemm_args(const ExpertShape& shape, const Matrices& matrices) {
  WgmmaGroupedArgs args;
  args.views[0] = reinterpret_cast<const std::byte*>(matrices.table);
  args.view_stride = sizeof(ExpertMatrix);
  args.count = 1;
  args.gptq = !matrices.all_exl2;
  args.widest = std::bit_width(matrices.widths) - 1;
  args.k_steps = matrices.k_steps;
  args.out = static_cast<std::int32_t>(matrices.out);
  args.row_count = shape.choices;
  args.tile_rows = shape.tile_rows;
  return args;
}

// Gate and up in one launch.
WgmmaGroupedArgs paired_args(const ExpertShape& shape) {
  WgmmaGroupedArgs args = gemm_args(shape, shape.gate);
  args.views[1] = reinterpret_cast<const std::byte*>(shape.up.table);
  args.count = 2;
  args.widest = std::bit_width(shape.gate.widths | shape.up.widths) - 1;
  return args;
}

bool has_one_kind(const Matrices& matrices) {
  return !matrices.some_plain && (matrices.all_exl2 || matrices.all_gptq);
}

// The calls of one slice of tokens.
class GroupedSlice {
 public:
  GroupedSlice(ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts)
      : ctx_(ctx), args_(args), shape_(args, experts, args.x.rows()) {
    rows_ = choices_of(args, experts);
    rows_.tile_rows = shape_.tile_rows;
    rows_.row_tiles = reinterpret_cast<WgmmaRowTile*>(ints(shape_.row_tiles * kTileInts));
    rows_.row_tile_count = ints(2);
    rows_.live_rows = rows_.row_tile_count + 1;
    rows_.row_of_choice = ints(shape_.choices);
    rows_.choice_of_row = ints(shape_.choices);
  }

  void run() {
    sort_choices(ctx_, rows_);
    const Hidden hidden = shape_.activates ? activated_gemm() : separate_gemms();
    WgmmaGroupedArgs gemm = gemm_args(shape_, shape_.down);
    gemm.rows = hidden.rows;
    gemm.out_scale = hidden.scale;
    gemm.to = floats(shape_.choices * shape_.out_stride());
    gemm.out_stride = shape_.out_stride();
    run_gemm(gemm);
    sum_experts(ctx_, {.rows = rows_,
                       .y = gemm.to,
                       .y_stride = gemm.out_stride,
                       .row_scales = hidden.row_scales,
                       .down = shape_.down.has_bias ? shape_.down.table : nullptr,
                       .out = args_.out.as<float>(),
                       .out_stride = args_.out.row_stride,
                       .columns = gemm.out,
                       .weigh = !args_.weights_on_input});
  }

 private:
  // Rows for the down matrices. They are divided by *scale, and each by its own of row_scales.
  struct Hidden {
    const __half* rows = nullptr;
    const float* scale = nullptr;
    const float* row_scales = nullptr;  // or null
  };

  std::int32_t* ints(std::int64_t count) {
    return ctx_.scratch->take(DType::kI32, {count}).as<std::int32_t>();
  }
  float* floats(std::int64_t count) { return ctx_.scratch->take_f32({count}).as<float>(); }
  __half* halves(std::int64_t count) {
    return static_cast<__half*>(ctx_.scratch->take(DType::kF16, {count}).data);
  }

  void run_gemm(WgmmaGroupedArgs args) {
    args.row_tiles = rows_.row_tiles;
    args.row_tile_count = rows_.row_tile_count;
    const auto plan = plan_wgmma_grouped(cuda_device(ctx_).facts(), args);
    BL_CHECK(plan.has_value());
    gemm_wgmma_grouped(ctx_, *plan);
  }

  // Rows of x in the order of k of each expert's matrix; `gemm` reads them.
  void make_input(const Matrices& matrices, float multiplier, WgmmaGroupedArgs& gemm) {
    GroupedInputArgs input;
    input.rows = rows_;
    input.x = args_.x.as<const float>();
    input.x_stride = args_.x.row_stride;
    input.in = static_cast<std::int32_t>(matrices.in);
    input.table = matrices.table;
    input.k = matrices.k_steps * kKStepSize;
    input.to = halves(shape_.choices * input.k);
    input.weigh = args_.weights_on_input;
    input.out_scale = floats(1);
    input.multiplier = multiplier;
    if (token_largest_ == nullptr) {
      token_largest_ = floats(args_.x.rows());
      find_token_largest(ctx_, input, token_largest_);
    }
    input.token_largest = token_largest_;
    make_grouped_input(ctx_, input);
    gemm.rows = input.to;
    gemm.out_scale = input.out_scale;
  }

  Hidden activated_gemm() {
    WgmmaGroupedArgs gemm = paired_args(shape_);
    make_input(shape_.gate, kHalfGate, gemm);
    WgmmaActivation& activation = gemm.activation;
    activation.rows = halves(shape_.choices * shape_.hidden_k);
    activation.stride = shape_.hidden_k;
    activation.act_scale = floats(1);
    activation.kind = args_.activation.kind;
    run_gemm(gemm);
    if (!shape_.gathers) return {activation.rows, activation.act_scale, nullptr};
    GroupedGatherArgs gather;
    gather.rows = rows_;
    gather.data = activation.rows;
    gather.k = static_cast<std::int32_t>(shape_.hidden_k);
    gather.width = static_cast<std::int32_t>(args_.intermediate);
    gather.down = shape_.down.table;
    gather_grouped_hidden(ctx_, gather);
    return {activation.rows, activation.act_scale, nullptr};
  }

  Hidden separate_gemms() {
    float* first = floats(shape_.choices * shape_.first_stride());
    std::int64_t column = 0;
    for (const Matrices* matrices : {&shape_.gate, &shape_.up}) {
      if (matrices->table == nullptr) continue;
      WgmmaGroupedArgs gemm = gemm_args(shape_, *matrices);
      make_input(*matrices, 1.0f, gemm);
      gemm.to = first + column;
      gemm.out_stride = shape_.first_stride();
      column += matrices->out;
      run_gemm(gemm);
    }
    GroupedHiddenArgs hidden;
    hidden.rows = rows_;
    hidden.first = first;
    hidden.first_stride = shape_.first_stride();
    hidden.width = static_cast<std::int32_t>(args_.intermediate);
    hidden.gated = shape_.gated;
    hidden.activation = activation_parameters(args_.activation);
    hidden.gate = shape_.gate.table;
    hidden.up = shape_.up.table;
    hidden.down = shape_.down.table;
    hidden.k = static_cast<std::int32_t>(shape_.hidden_k);
    hidden.to = halves(shape_.choices * shape_.hidden_k);
    hidden.row_scales = floats(shape_.choices);
    make_grouped_hidden(ctx_, hidden);
    return {hidden.to, cuda_device(ctx_).constant(true), hidden.row_scales};
  }

  ExecContext& ctx_;
  const ExpertsArgs& args_;
  ExpertShape shape_;
  ExpertRows rows_;
  float* token_largest_ = nullptr;
};

}  // namespace

bool can_group_experts(const ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts,
                       std::int64_t tokens) {
  const DeviceFacts& facts = cuda_device(ctx).facts();
  if (ctx.deterministic || !has_wgmma(facts)) return false;
  const ExpertShape shape(args, experts, tokens);
  if (shape.choices < kFewestGroupedRows * std::min(shape.choices, experts.count())) return false;
  const bool one_kind = has_one_kind(shape.up) && has_one_kind(shape.down) &&
                        (shape.gate.table == nullptr ||
                         (has_one_kind(shape.gate) && shape.gate.all_exl2 == shape.up.all_exl2));
  const auto fits = [](std::int64_t width) { return width % 8 == 0 && width <= kWidestGroupedRow; };
  if (!one_kind || !fits(shape.up.in) || !fits(args.intermediate)) return false;
  const auto has_plan = [&](const WgmmaGroupedArgs& gemm) {
    return plan_wgmma_grouped(facts, gemm).has_value();
  };
  if (!has_plan(gemm_args(shape, shape.down))) return false;
  if (shape.activates) return has_plan(paired_args(shape));
  return has_plan(gemm_args(shape, shape.up)) &&
         (shape.gate.table == nullptr || has_plan(gemm_args(shape, shape.gate)));
}

std::size_t grouped_expert_bytes(const ExpertsArgs& args, const CudaExperts& experts,
                                 std::int64_t tokens) {
  const ExpertShape shape(args, experts, tokens);
  const std::int64_t rows = shape.choices;
  const std::size_t tables = 2 * arena_bytes(DType::kI32, rows) +
                             arena_bytes(DType::kI32, shape.row_tiles * kTileInts) +
                             f32_bytes(tokens) + f32_bytes(rows) + 8 * f32_bytes(64);
  const std::size_t hidden = f16_bytes(rows * shape.hidden_k) +
                             (shape.activates ? 0 : f32_bytes(rows * shape.first_stride()));
  return tables + f16_bytes(shape.input_rows() * shape.in_k) + hidden +
         f32_bytes(rows * shape.out_stride());
}

void grouped_experts(ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts) {
  GroupedSlice(ctx, args, experts).run();
}

}  // namespace bl::cuda
