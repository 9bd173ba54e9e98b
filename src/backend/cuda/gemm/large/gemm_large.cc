#include "backend/cuda/gemm/large/gemm_large.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "backend/cuda/gemm/activations/act_f16.h"
#include "backend/cuda/gemm/activations/activate_staged.h"
#include "backend/cuda/gemm/gemm_ops.h"
#include "backend/cuda/gemm/gemm_state.h"
#include "backend/cuda/gemm/large/blas_lt.h"
#include "backend/cuda/gemm/large/dense_gemv.h"
#include "backend/cuda/gemm/large/dequantize.h"
#include "backend/cuda/gemm/large/narrow_gemv.h"
#include "backend/cuda/gemm/wgmma/gemm_wgmma_dequant.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

// Binary16 rows of activations, and the scale of GEMMs with them.
struct LargeInput {
  ActF16 rows;
  const float* out_scale = nullptr;  // device
};

class LargeRun {
 public:
  LargeRun(ExecContext& ctx, const MatmulArgs& gemm, const LargePlan& plan)
      : ctx_(ctx), gemm_(gemm), plan_(plan), tokens_(gemm.tokens()) {}

  void run() {
    ArenaScope scope(*ctx_.scratch);
    std::vector<LargeInput> inputs;
    if (plan_.norm_together) inputs = normalise_together();
    if (plan_.one_launch) {
      run_one_launch(inputs);
      return;
    }
    for (std::size_t i = 0; i < plan_.groups.size(); ++i) {
      ArenaScope own(*ctx_.scratch);
      const LargeGroup& group = plan_.groups[i];
      if (group.reads_f16) {
        run_group(inputs.empty() ? input_for(group.outputs.front()->weight) : inputs[i], group);
      } else {
        run_wide(*group.outputs.front());
      }
    }
    if (plan_.activates || gemm_.epilogue.activation == nullptr) return;
    if (plan_.f16_results) {
      activate_into_halves(ctx_, *gemm_.epilogue.activation, true);
    } else {
      activate(ctx_, *gemm_.epilogue.activation);
    }
  }

 private:
  float multiplier() const {
    return plan_.f16_results ? gemm_.epilogue.multiplier * kHalfGate : gemm_.epilogue.multiplier;
  }
  TensorView take_f16(std::int64_t count) { return ctx_.scratch->take(DType::kF16, {count}); }
  float* take_number() { return ctx_.scratch->take_f32({1}).as<float>(); }

  std::vector<LargeInput> normalise_together() {
    std::vector<ActF16> to;
    for (const LargeGroup& group : plan_.groups) {
      to.push_back(act_f16_for(group.outputs.front()->weight));
    }
    return normalised(std::move(to));
  }
  // Normalises x into rows of these layouts; takes their memory here.
  std::vector<LargeInput> normalised(std::vector<ActF16> to) {
    float* out_scale = take_number();
    std::vector<LargeInput> inputs;
    for (ActF16& rows : to) {
      rows.rows = take_f16(tokens_ * rows.k).data;
      inputs.push_back({rows, out_scale});
    }
    make_act_f16_norm(ctx_, {gemm_.x, to, multiplier(), out_scale}, *gemm_.prologue.norm);
    return inputs;
  }

  LargeInput input_for(const PackedMatrix* weight) {
    if (gemm_.staged_x != nullptr) return staged_input(weight);
    if (gemm_.prologue.norm != nullptr) return normalised({act_f16_for(weight)}).front();
    ActF16Args made{.x = gemm_.x, .to = act_f16_for(weight), .multiplier = multiplier()};
    made.to.rows = take_f16(tokens_ * made.to.k).data;
    made.out_scale = take_number();
    if (made.to.type == DType::kF16) {
      // row_largest is freed with the rows, so each group of matrices with other rows computes it
      // again.
      made.row_largest = ctx_.scratch->take_f32({tokens_}).as<float>();
      find_largest(ctx_, gemm_.x, made.row_largest);
    }
    make_act_f16(ctx_, made);
    return {made.to, made.out_scale};
  }

  LargeInput staged_input(const PackedMatrix* weight) {
    const StagedInput& staged = *gemm_.staged_x;
    BL_CHECK(staged.reader == weight && gemm_.outputs.size() == 1);
    LargeInput input;
    input.rows = act_f16_for(weight);
    BL_CHECK(staged.rows.columns() == input.rows.k);
    input.rows.rows = staged.rows.data;
    input.out_scale = staged.row_scales;
    if (multiplier() != 1.0f) {
      float* out_scale = take_number();
      multiply_act_scale(ctx_, staged.row_scales, multiplier(), out_scale);
      input.out_scale = out_scale;
    }
    return input;
  }

  void run_one_launch(const std::vector<LargeInput>& inputs) {
    WgmmaPlan wgmma = plan_.wgmma;
    wgmma.launch.args.out_scale = inputs.front().out_scale;
    int matrix = 0;
    for (std::size_t i = 0; i < plan_.groups.size(); ++i) {
      for (std::size_t j = 0; j < plan_.groups[i].outputs.size(); ++j) {
        wgmma.launch.args.matrices[matrix++].rows = static_cast<const __half*>(inputs[i].rows.rows);
      }
    }
    gemm_wgmma_dequant(ctx_, wgmma);
    for (const MatmulOutput& output : gemm_.outputs) add_own_bias(output);
  }

  void run_group(const LargeInput& input, const LargeGroup& group) {
    for (const LargeLaunch& launch : group.launches) {
      const auto outputs = std::span(group.outputs).subspan(launch.first, launch.count);
      switch (launch.kernel) {
        case LargeKernel::kWgmma:
          run_wgmma(input, launch.wgmma);
          break;
        case LargeKernel::kDequantLibrary:
          if (launch.count > 1) {
            run_dequantized_together(input, outputs);
          } else {
            run_dequantized_in_slices(input, *outputs[0]);
          }
          break;
        case LargeKernel::kLibrary:
          run_library(input, cuda_matrix(outputs[0]->weight).dense()->rows, outputs[0]->out,
                      {0, outputs[0]->weight->out()});
          break;
      }
    }
    for (const MatmulOutput* output : group.outputs) add_own_bias(*output);
  }

  void run_wgmma(const LargeInput& input, const WgmmaPlan& plan) {
    WgmmaPlan own = plan;
    WgmmaArgs& args = own.launch.args;
    args.out_scale = input.out_scale;
    for (int i = 0; i < args.count; ++i) {
      args.matrices[i].rows = static_cast<const __half*>(input.rows.rows);
    }
    gemm_wgmma_dequant(ctx_, own);
  }

  void expand(const CodeMatrixView& view, int first, std::int64_t n_tiles, __half* to) {
    dequantize(
        ctx_,
        {.view = view, .first_n_tile = first, .n_tiles = static_cast<int>(n_tiles), .rows = to});
  }

  // Dequantizes whole matrices whose outputs are adjacent, and multiplies them by one GEMM.
  void run_dequantized_together(const LargeInput& input,
                                std::span<const MatmulOutput* const> outputs) {
    std::int64_t n_tiles = 0;
    std::int64_t columns = 0;
    for (const MatmulOutput* output : outputs) {
      n_tiles += cuda_matrix(output->weight).codes()->view.n_tiles;
      columns += output->weight->out();
    }
    ArenaScope scope(*ctx_.scratch);
    const std::int64_t n_tile_elements = dequantized_n_tile_bytes(input.rows.k) / 2;
    const TensorView expanded = take_f16(n_tiles * n_tile_elements);
    auto* to = expanded.as<__half>();
    for (const MatmulOutput* output : outputs) {
      const CodeMatrixView& view = cuda_matrix(output->weight).codes()->view;
      expand(view, 0, view.n_tiles, to);
      to += view.n_tiles * n_tile_elements;
    }
    run_library(input, expanded.data, outputs.front()->out, {0, columns});
  }

  // One matrix, in slices of as many n_tiles as kExpandedBytes hold.
  void run_dequantized_in_slices(const LargeInput& input, const MatmulOutput& output) {
    ArenaScope scope(*ctx_.scratch);
    const CodeMatrixView& view = cuda_matrix(output.weight).codes()->view;
    const std::int64_t n_tile_bytes = dequantized_n_tile_bytes(input.rows.k);
    const std::int64_t at_once =
        std::clamp<std::int64_t>(kExpandedBytes / n_tile_bytes, 1, view.n_tiles);
    const TensorView expanded = take_f16(at_once * n_tile_bytes / 2);
    for (std::int64_t first = 0; first < view.n_tiles; first += at_once) {
      const std::int64_t n_tiles = std::min<std::int64_t>(at_once, view.n_tiles - first);
      expand(view, static_cast<int>(first), n_tiles, expanded.as<__half>());
      const std::int64_t column = first * kNTileColumns;
      run_library(input, expanded.data, output.out,
                  {column, std::min(n_tiles * kNTileColumns, output.weight->out() - column)});
    }
  }

  struct Columns {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  // Columns of `out`, or of adjacent outputs that begin with it, = out_scale · rows · wᵀ.
  void run_library(const LargeInput& input, const void* w, const TensorView& out,
                   const Columns& columns) {
    BlasGemm gemm;
    gemm.type = input.rows.type;
    gemm.x = input.rows.rows;
    gemm.w = w;
    gemm.tokens = tokens_;
    gemm.columns = columns.count;
    gemm.in = input.rows.k;
    gemm.out_scale = input.out_scale;
    gemm.beta = cuda_device(ctx_).constant(gemm_.epilogue.accumulate);
    if (plan_.f16_results) {  // at the beginning of what would be an F32 row
      gemm.out_type = DType::kF16;
      gemm.out = out.as<__half>() + columns.first;
      gemm.out_stride = 2 * out.row_stride;
    } else {
      gemm.out = out.as<float>() + columns.first;
      gemm.out_stride = out.row_stride;
    }
    gemm_state(ctx_).blas.run(gemm, cuda_device(ctx_).stream);
  }

  // A matrix in F32, or with rows that cuBLASLt cannot read.
  void run_wide(const MatmulOutput& output) {
    const DenseWeights& weights = *cuda_matrix(output.weight).dense();
    const std::int64_t in = output.weight->in();
    const bool library = weights.type == DType::kF32 && in % 4 == 0 && gemm_.x.row_stride == in &&
                         gemm_.epilogue.multiplier == 1.0f;
    if (!library) {
      dense_gemv_rows(ctx_, gemm_, output);
      return;
    }
    const CudaDevice& device = cuda_device(ctx_);
    gemm_state(ctx_).blas.run({.type = DType::kF32,
                               .x = gemm_.x.data,
                               .w = weights.rows,
                               .out = output.out.data,
                               .tokens = tokens_,
                               .columns = output.weight->out(),
                               .in = in,
                               .out_stride = output.out.row_stride,
                               .out_scale = device.constant(true),
                               .beta = device.constant(gemm_.epilogue.accumulate)},
                              device.stream);
    add_own_bias(output);
  }
  void add_own_bias(const MatmulOutput& output) {
    if (has_bias(output)) add_bias(ctx_, output.out, bias_of(output));
  }

  ExecContext& ctx_;
  const MatmulArgs& gemm_;
  const LargePlan& plan_;
  std::int64_t tokens_;
};

}  // namespace

void gemm_large(ExecContext& ctx, const MatmulArgs& gemm, const LargePlan& plan) {
  LargeRun(ctx, gemm, plan).run();
}

void dense_gemv_rows(ExecContext& ctx, const MatmulArgs& gemm, const MatmulOutput& output) {
  const DenseWeights& weights = *cuda_matrix(output.weight).dense();
  const DenseGemvArgs all{.x = gemm.x,
                          .rows = weights.rows,
                          .type = weights.type,
                          .out = output.out,
                          .bias = bias_of(output),
                          .multiplier = gemm.epilogue.multiplier,
                          .accumulate = gemm.epilogue.accumulate};
  if (output.weight->out() <= kMaxNarrowColumns) return narrow_gemv(ctx, all);
  for (std::int64_t first = 0; first < gemm.x.rows(); first += kMaxDenseTokens) {
    const std::int64_t count = std::min<std::int64_t>(kMaxDenseTokens, gemm.x.rows() - first);
    DenseGemvArgs part = all;
    part.x = slice_rows(gemm.x, first, count);
    part.out = slice_rows(output.out, first, count);
    dense_gemv(ctx, part);
  }
}

void dense_library_gemm(ExecContext& ctx, const MatmulArgs& gemm, const MatmulOutput& output) {
  MatmulArgs one = gemm;
  one.outputs = {&output, 1};
  LargePlan plan;
  plan.groups.push_back({{&output}, true, {{LargeKernel::kLibrary, 0, 1}}});
  gemm_large(ctx, one, plan);
}

}  // namespace bl::cuda
