#include <algorithm>

#include "backend/cuda/layout/code_matrix.h"
#include "backend/cuda/moe/cuda_experts.h"
#include "backend/cuda/moe/expert_kernels.h"
#include "backend/cuda/moe/expert_scratch.h"
#include "backend/cuda/moe/grouped_experts.h"
#include "backend/cuda/moe/moe_ops.h"
#include "backend/cuda/moe/streamed_experts.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr std::int64_t kSliceChoices = 32768;  // keeps a grid's dimensions within their limits
// Average rows an expert above which blocks are large.
constexpr std::int64_t kManyRows = 8;

ExpertScratch sizes_of(const ExpertsArgs& args, const CudaExperts& experts) {
  const CudaExperts::Matrices& gate = experts.matrices(CudaExperts::kGate);
  const CudaExperts::Matrices& up = experts.matrices(CudaExperts::kUp);
  const CudaExperts::Matrices& down = experts.matrices(CudaExperts::kDown);
  ExpertScratch s;
  s.experts = experts.count();
  s.k = args.k;
  s.input_k_steps = std::max(gate.k_steps, up.k_steps);
  s.input_layouts = s.input_k_steps == 0 ? 0 : experts.one_input_layout() ? 1 : 2;
  s.first_width = gate.out + up.out;
  s.hidden_k_steps = down.k_steps;
  s.hidden_width = down.some_plain ? args.intermediate : 0;
  s.out = down.out;
  return s;
}

// One slice of the tokens: sort, pack, multiply, activate, multiply, add up.
class Slice {
 public:
  Slice(ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts)
      : ctx_(ctx), args_(args), experts_(experts), sizes_(sizes_of(args, experts)) {
    const std::int64_t choices = args.x.rows() * args.k;
    const std::int64_t used = std::min(choices, experts.count());
    rows_ = blocks_of_choices(ctx, args, experts,
                              choices > kManyRows * used ? kLargeBlock : kSmallBlock);
    count_ = std::int64_t{rows_.blocks} * rows_.block_rows;
  }

  void run() {
    sort_choices(ctx_, rows_);
    second_gemm(first_gemms());
  }

 private:
  float* floats(std::int64_t count) { return ctx_.scratch->take_f32({count}).as<float>(); }

  ExpertFragments fragments_for(const CudaExperts::Matrices& matrices, std::int64_t k_steps) {
    ExpertFragments to;
    to.table = matrices.table;
    to.fragments =
        ctx_.scratch->take(DType::kF16, {count_ * k_steps * kKStepSize}).as<std::uint32_t>();
    return to;
  }

  static void add_matrix(ExpertGemmArgs& gemm, const CudaExperts::Matrices& matrices) {
    if (matrices.table == nullptr) return;
    ExpertGemmArgs::Matrix& m = gemm.matrices[gemm.count];
    m.table = matrices.table;
    m.out = static_cast<std::int32_t>(matrices.out);
    m.copy_block_bytes = matrices.copy_block_bytes;
    m.copy_block_scale_bytes = matrices.copy_block_scale_bytes;
    if (gemm.count == 1) m.first_column = gemm.matrices[0].out;
    gemm.in = static_cast<std::int32_t>(matrices.in);
    ++gemm.count;
  }

  // Packs x for each matrix of `gemm` that has codes.
  void pack_inputs(ExpertGemmArgs& gemm) {
    ExpertInputArgs input;
    input.rows = rows_;
    input.x = args_.x.as<const float>();
    input.x_stride = args_.x.row_stride;
    input.in = gemm.in;
    input.k_steps = static_cast<std::int32_t>(sizes_.input_k_steps);
    input.row_scales = floats(count_);
    input.weigh = args_.weights_on_input;
    for (int i = 0; i < gemm.count; ++i) {
      if (i == 0 || !experts_.one_input_layout()) {
        const auto role = gemm.count == 2 && i == 0 ? CudaExperts::kGate : CudaExperts::kUp;
        input.input_layouts[input.input_layout_count++] =
            fragments_for(experts_.matrices(role), sizes_.input_k_steps);
      }
      const ExpertFragments& from = input.input_layouts[input.input_layout_count - 1];
      gemm.matrices[i].fragments = from.fragments;
    }
    pack_expert_inputs(ctx_, input);
    gemm.k_steps = input.k_steps;
    gemm.row_scales = input.row_scales;
  }

  ExpertHiddenArgs first_gemms() {
    const CudaExperts::Matrices& gate = experts_.matrices(CudaExperts::kGate);
    const CudaExperts::Matrices& up = experts_.matrices(CudaExperts::kUp);
    ExpertGemmArgs gemm;
    gemm.rows = rows_;
    add_matrix(gemm, gate);
    add_matrix(gemm, up);
    gemm.out_stride = ExpertScratch::rounded(sizes_.first_width);
    gemm.out = floats(count_ * gemm.out_stride);
    gemm.x = args_.x.as<const float>();
    gemm.x_stride = args_.x.row_stride;
    gemm.x_of_tokens = true;
    gemm.weigh = args_.weights_on_input;
    if (sizes_.input_layouts > 0) {
      pack_inputs(gemm);
      expert_code_gemm(ctx_, gemm);
    }
    if (gate.some_plain || up.some_plain) expert_plain_gemm(ctx_, gemm);

    ExpertHiddenArgs hidden;
    hidden.rows = rows_;
    hidden.first = gemm.out;
    hidden.first_stride = gemm.out_stride;
    hidden.width = static_cast<std::int32_t>(args_.intermediate);
    hidden.gated = args_.fused_gate_up || gate.table != nullptr;
    BL_CHECK(sizes_.first_width == (hidden.gated ? 2 : 1) * args_.intermediate);
    hidden.activation = activation_parameters(args_.activation);
    return hidden;
  }

  void second_gemm(ExpertHiddenArgs hidden) {
    const CudaExperts::Matrices& down = experts_.matrices(CudaExperts::kDown);
    BL_CHECK(down.in == args_.intermediate);
    ExpertGemmArgs gemm;
    gemm.rows = rows_;
    add_matrix(gemm, down);
    gemm.out_stride = ExpertScratch::rounded(down.out);
    gemm.out = floats(count_ * gemm.out_stride);
    hidden.down = down.table;
    if (down.some_codes) {
      hidden.to = fragments_for(down, down.k_steps);
      hidden.k_steps = down.k_steps;
      hidden.row_scales = floats(count_);
      pack_expert_hidden(ctx_, hidden);
      gemm.matrices[0].fragments = hidden.to.fragments;
      gemm.k_steps = down.k_steps;
      gemm.row_scales = hidden.row_scales;
      expert_code_gemm(ctx_, gemm);
    }
    if (down.some_plain) {
      hidden.hidden_stride = ExpertScratch::rounded(hidden.width);
      hidden.hidden = floats(count_ * hidden.hidden_stride);
      activate_expert_rows(ctx_, hidden);
      gemm.x = hidden.hidden;
      gemm.x_stride = hidden.hidden_stride;
      expert_plain_gemm(ctx_, gemm);
    }
    sum_experts(ctx_, {.rows = rows_,
                       .y = gemm.out,
                       .y_stride = gemm.out_stride,
                       .out = args_.out.as<float>(),
                       .out_stride = args_.out.row_stride,
                       .columns = gemm.matrices[0].out,
                       .weigh = !args_.weights_on_input});
  }

  ExecContext& ctx_;
  const ExpertsArgs& args_;
  const CudaExperts& experts_;
  ExpertScratch sizes_;
  ExpertRows rows_;
  std::int64_t count_ = 0;  // of all blocks, live or not
};

}  // namespace

void experts(ExecContext& ctx, const ExpertsArgs& args) {
  BL_CHECK(args.packed != nullptr);
  const auto& experts = static_cast<const CudaExperts&>(*args.packed);
  const ExpertScratch sizes = sizes_of(args, experts);
  const std::int64_t tokens = args.x.rows();
  const auto bytes = [&](std::int64_t count) {
    return can_group_experts(ctx, args, experts, count) ? grouped_expert_bytes(args, experts, count)
                                                        : sizes.bytes(count);
  };
  std::int64_t at_once = tokens;
  while (at_once > 1 && (at_once * args.k > kSliceChoices || bytes(at_once) > kExpertSliceBytes)) {
    at_once = (at_once + 1) / 2;
  }
  for (std::int64_t first = 0; first < tokens; first += at_once) {
    const std::int64_t count = std::min(at_once, tokens - first);
    ExpertsArgs slice = args;
    slice.x = slice_rows(args.x, first, count);
    slice.experts = args.experts + first * args.k;
    slice.weights = slice_rows(args.weights, first, count);
    slice.out = slice_rows(args.out, first, count);
    ArenaScope scope(*ctx.scratch);
    if (can_group_experts(ctx, args, experts, count)) {
      grouped_experts(ctx, slice, experts);
    } else if (can_stream_experts(ctx, args, experts)) {
      streamed_experts(ctx, slice, experts);
    } else {
      Slice(ctx, slice, experts).run();
    }
  }
}

}  // namespace bl::cuda
