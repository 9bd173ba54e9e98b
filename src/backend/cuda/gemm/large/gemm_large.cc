#include "backend/cuda/gemm/large/gemm_large.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/gemm/activations/act_f16.h"
#include "backend/cuda/gemm/activations/staged_input.h"
#include "backend/cuda/gemm/large/blas_lt.h"
#include "backend/cuda/gemm/large/dense_gemv.h"
#include "backend/cuda/gemm/large/dequantize.h"
#include "backend/cuda/gemm/wgmma/gemm_wgmma_dequant.h"
#include "backend/cuda/ops/activation_math.cuh"
#include "backend/cuda/scratch_plan.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

// cuBLASLt wants rows of 16-byte multiples; odd ones go the other way.
bool blas_takes(const DenseWeights& weights, std::int64_t in) {
  return in % (16 / static_cast<std::int64_t>(size_of(weights.type))) == 0;
}

// Whether a matrix reads rows of 16 bits here.
bool reads_act_f16(const PackedMatrix* weight) {
  const DenseWeights* dense = cuda_matrix(weight).dense();
  return dense == nullptr || (dense->type != DType::kF32 && blas_takes(*dense, weight->in()));
}

// Equal numbers: one set of rows serves both.
std::uint64_t permutation_of(const PackedMatrix* weight) {
  const CodeWeights* codes = cuda_matrix(weight).codes();
  return codes == nullptr || codes->is_identity ? 0 : codes->permutation;
}
bool read_alike(const PackedMatrix* a, const PackedMatrix* b) {
  const ActF16 first = act_f16_for(a);
  const ActF16 second = act_f16_for(b);
  return first.k == second.k && first.type == second.type && permutation_of(a) == permutation_of(b);
}

int widest_of(WidthSet widths) { return std::bit_width(widths) - 1; }

// The products of one call.
class GemmLarge {
 public:
  GemmLarge(ExecContext& ctx, const MatmulArgs& args)
      : ctx_(ctx),
        args_(args),
        backend_(*cuda_ops_of(ctx).backend),
        tokens_((args.staged_x != nullptr ? args.staged_x->rows : args.x).rows()),
        half_results_(stores_f16()) {}

  void run() {
    ArenaScope scope(*ctx_.scratch);
    const std::vector<Alike> groups = alike_outputs();
    const std::vector<Input> inputs = normalised_together(groups);
    if (multiplied_together(groups, inputs)) return;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      ArenaScope own(*ctx_.scratch);
      const MatmulOutput& first = *groups[i].front();
      if (!reads_act_f16(first.weight)) {
        wide_matmul(first);
      } else {
        multiply_all(inputs.empty() ? input_for(first.weight) : inputs[i], groups[i]);
      }
    }
    if (activated_) return;
    if (half_results_) {
      activate_into_halves(ctx_, *args_.activation, true);
    } else if (args_.activation != nullptr) {
      activate(ctx_, *args_.activation);
    }
  }

 private:
  // Rows of 16 bits, and what products with them are multiplied by.
  struct Input {
    ActF16 rows;
    const float* out_scale = nullptr;
  };
  // Outputs whose matrices read one set of rows; or one that reads none of 16 bits.
  using Alike = std::vector<const MatmulOutput*>;

  std::vector<Alike> alike_outputs() const {
    std::vector<Alike> groups;
    for (const MatmulOutput& output : args_.outputs) {
      const auto takes = [&](const Alike& group) {
        const PackedMatrix* first = group.front()->weight;
        return reads_act_f16(output.weight) && reads_act_f16(first) &&
               read_alike(first, output.weight);
      };
      const auto group = std::find_if(groups.begin(), groups.end(), takes);
      if (group != groups.end()) {
        group->push_back(&output);
      } else {
        groups.push_back({&output});
      }
    }
    return groups;
  }

  // The inputs of groups whose rows are normalised by one launch, since they differ by order alone;
  // none where each group's are made by themselves.
  std::vector<Input> normalised_together(const std::vector<Alike>& groups) {
    if (args_.norm == nullptr || groups.size() < 2 || groups.size() > kMaxMatrices) return {};
    std::vector<ActF16> to;
    std::size_t bytes = arena_bytes(DType::kF32, kPartialFloats + 1);  // beside rows: parts of sums
    for (const Alike& group : groups) {
      if (!std::all_of(group.begin(), group.end(), [this](const MatmulOutput* output) {
            WgmmaArgs alone = wgmma_args({});
            return adds_matrix(alone, *output, {});
          })) {
        return {};
      }
      to.push_back(act_f16_for(group.front()->weight));
      bytes += arena_bytes(DType::kF16, tokens_ * to.back().k);
    }
    const Arena& scratch = *ctx_.scratch;
    if (bytes > scratch.capacity() - scratch.mark()) return {};
    return normalised(std::move(to));
  }
  // Rows in these orders; where they go is taken here.
  std::vector<Input> normalised(std::vector<ActF16> to) {
    float* out_scale = take_number();
    std::vector<Input> inputs;
    for (ActF16& rows : to) {
      rows.rows = take_f16(tokens_ * rows.k).data;
      inputs.push_back({rows, out_scale});
    }
    make_act_f16_norm(ctx_, {args_.x, to, multiplier(), out_scale}, *args_.norm);
    return inputs;
  }
  // Gate and up pass through binary16 on their way to an activation that leaves halves.
  bool stores_f16() const {
    if (args_.activation == nullptr || args_.activation->staged_out == nullptr) return false;
    return !args_.accumulate &&
           std::all_of(args_.outputs.begin(), args_.outputs.end(), [](const MatmulOutput& output) {
             return !has_bias(output) && reads_act_f16(output.weight) &&
                    act_f16_for(output.weight).type == DType::kF16;
           });
  }
  float multiplier() const {
    return half_results_ ? args_.multiplier * kHalfGate : args_.multiplier;
  }

  Input input_for(const PackedMatrix* weight) {
    if (args_.staged_x != nullptr) return given_input(weight);
    if (args_.norm != nullptr) return normalised({act_f16_for(weight)}).front();
    ActF16Args made{.x = args_.x, .to = act_f16_for(weight), .multiplier = multiplier()};
    made.to.rows = take_f16(tokens_ * made.to.k).data;
    made.out_scale = take_number();
    if (made.to.type == DType::kF16) {
      // Given back with the rows: matrices that read apart look once more.
      made.row_largest = ctx_.scratch->take_f32({tokens_}).as<float>();
      find_largest(ctx_, args_.x, made.row_largest);
    }
    make_act_f16(ctx_, made);
    return {made.to, made.out_scale};
  }

  Input given_input(const PackedMatrix* weight) {
    const StagedInput& given = *args_.staged_x;
    BL_CHECK(given.reader == weight && args_.outputs.size() == 1);
    Input input;
    input.rows = act_f16_for(weight);
    BL_CHECK(given.rows.columns() == input.rows.k);
    input.rows.rows = given.rows.data;
    input.out_scale = given.row_scales;
    if (multiplier() != 1.0f) {
      float* out_scale = take_number();
      multiply_act_scale(ctx_, given.row_scales, multiplier(), out_scale);
      input.out_scale = out_scale;
    }
    return input;
  }

  void multiply_all(const Input& input, const Alike& outputs) {
    std::size_t decoded = 0;
    while (const std::size_t more = multiply_decoded(input, std::span(outputs).subspan(decoded))) {
      decoded += more;
    }
    for (std::size_t i = decoded; i < outputs.size();) {
      if (!has_codes(*outputs[i])) {
        const DenseWeights& weights = *cuda_matrix(outputs[i]->weight).dense();
        multiply(input, weights.rows, outputs[i]->out, {0, outputs[i]->weight->out()});
        i += 1;
        continue;
      }
      const std::size_t count = neighbours(input, outputs, i);
      if (count > 1) {
        multiply_together(input, {outputs.data() + i, count});
      } else {
        multiply_slices(input, *outputs[i]);
      }
      i += count;
    }
    for (const MatmulOutput* output : outputs) add_own_bias(*output);
  }

  // As many of the outputs, from the first on, as one launch takes that expands nothing.
  std::size_t multiply_decoded(const Input& input, std::span<const MatmulOutput* const> outputs) {
    WgmmaArgs gemm = wgmma_args(input);
    std::size_t taken = 0;
    while (taken < outputs.size() && adds_matrix(gemm, *outputs[taken], input)) taken += 1;
    if (activates_in_gemm(outputs, gemm)) activated_ = true;
    if (taken > 0) gemm_wgmma_dequant(ctx_, gemm);
    return taken;
  }
  WgmmaArgs wgmma_args(const Input& input) const {
    WgmmaArgs gemm;
    gemm.tokens = tokens_;
    gemm.out_scale = input.out_scale;
    gemm.accumulate = args_.accumulate;
    gemm.halves = half_results_;
    return gemm;
  }
  // Adds one to those of a launch, if it can be one of them.
  bool adds_matrix(WgmmaArgs& gemm, const MatmulOutput& output, const Input& input) const {
    const std::int64_t from = backend_.launch_plan().wgmma_from;
    const bool decodes =
        tokens_ >= from && from != LaunchPlan::kNeverWgmma && has_wgmma(backend_.facts());
    if (!decodes || gemm.count == kMaxMatrices || !has_codes(output)) return false;
    const CodeWeights& codes = *cuda_matrix(output.weight).codes();
    WgmmaMatrix& m = gemm.matrices[gemm.count];
    m.view = codes.view;
    m.rows = static_cast<const __half*>(input.rows.rows);
    m.widest = widest_of(codes.plan.widths());
    m.out = output.out.data;
    m.out_stride = (half_results_ ? 2 : 1) * output.out.row_stride;
    gemm.count += 1;
    if (can_run_wgmma(backend_.facts(), gemm)) return true;
    gemm.count -= 1;
    return false;
  }

  // All products of rows that were made together in one launch, whose tiles fill the card better.
  // Gate's halves have to be there before up's are multiplied by them.
  bool multiplied_together(const std::vector<Alike>& groups, const std::vector<Input>& inputs) {
    if (inputs.empty() || half_results_ || args_.activation != nullptr) return false;
    WgmmaArgs gemm = wgmma_args(inputs.front());
    for (std::size_t i = 0; i < groups.size(); ++i) {
      for (const MatmulOutput* output : groups[i]) {
        if (!adds_matrix(gemm, *output, inputs[i])) return false;
      }
    }
    gemm_wgmma_dequant(ctx_, gemm);
    for (const MatmulOutput& output : args_.outputs) add_own_bias(output);
    return true;
  }

  // Gives the product of gate and up, or of up behind gate's, the activation, too, where it can
  // leave what its reader reads.
  bool activates_in_gemm(std::span<const MatmulOutput* const> outputs, WgmmaArgs& gemm) const {
    if (!half_results_ || args_.outputs.size() != 2) return false;
    const bool both = outputs.size() == 2 && gemm.count == 2;
    const bool up = gemm.count == 1 && outputs[0] == &args_.outputs[1];
    const StagedInput& half = *args_.activation->staged_out;
    const ActF16 wanted = act_f16_for(half.reader);
    const ActivationParameters activation = activation_parameters(*args_.activation);
    if (!(both || up) || !can_fuse_activation(activation) || wanted.feature_of_k != nullptr ||
        wanted.k != outputs[0]->weight->out()) {
      return false;
    }
    WgmmaArgs with = gemm;
    WgmmaActivation& to = with.activation;
    to.rows = half.rows.as<__half>();
    to.stride = half.rows.row_stride;
    to.act_scale = half.row_scales;
    to.kind = activation.kind;
    if (up) {
      to.gate = args_.activation->gate.as<const __half>();
      to.gate_stride = 2 * args_.activation->gate.row_stride;
    }
    if (!can_run_wgmma(backend_.facts(), with)) return false;
    gemm = with;
    return true;
  }

  TensorView take_f16(std::int64_t count) { return ctx_.scratch->take(DType::kF16, {count}); }
  float* take_number() { return ctx_.scratch->take_f32({1}).as<float>(); }

  static std::int64_t n_tile_bytes(const Input& input) { return input.rows.k * kNTileColumns * 2; }

  // How many of the outputs from `first` on lie side by side and are expanded together: one large
  // product wastes less of the card than a few small ones.
  std::size_t neighbours(const Input& input, const std::vector<const MatmulOutput*>& outputs,
                         std::size_t first) const {
    if (half_results_) return 1;  // halves are not where their floats would be
    std::int64_t n_tiles = cuda_matrix(outputs[first]->weight).codes()->view.n_tiles;
    std::size_t count = 1;
    while (first + count < outputs.size()) {
      const MatmulOutput& last = *outputs[first + count - 1];
      const MatmulOutput& next = *outputs[first + count];
      if (!has_codes(next) || last.weight->out() % kNTileColumns != 0 ||
          last.out.row_stride != next.out.row_stride ||
          last.out.as<float>() + last.weight->out() != next.out.as<float>()) {
        break;
      }
      n_tiles += cuda_matrix(next.weight).codes()->view.n_tiles;
      if (n_tiles * n_tile_bytes(input) > kExpandedBytes) break;
      count += 1;
    }
    return count;
  }

  void expand(const CodeMatrixView& view, int first, std::int64_t n_tiles, __half* to) {
    DequantizeArgs args;
    args.view = view;
    args.first_n_tile = first;
    args.n_tiles = static_cast<int>(n_tiles);
    args.rows = to;
    dequantize(ctx_, args);
  }

  void multiply_together(const Input& input, std::span<const MatmulOutput* const> outputs) {
    std::int64_t n_tiles = 0;
    std::int64_t columns = 0;
    for (const MatmulOutput* output : outputs) {
      n_tiles += cuda_matrix(output->weight).codes()->view.n_tiles;
      columns += output->weight->out();
    }
    ArenaScope scope(*ctx_.scratch);
    const TensorView expanded = take_f16(n_tiles * n_tile_bytes(input) / 2);
    auto* to = expanded.as<__half>();
    for (const MatmulOutput* output : outputs) {
      const CodeMatrixView& view = cuda_matrix(output->weight).codes()->view;
      expand(view, 0, view.n_tiles, to);
      to += view.n_tiles * n_tile_bytes(input) / 2;
    }
    multiply(input, expanded.data, outputs.front()->out, {0, columns});
  }

  void multiply_slices(const Input& input, const MatmulOutput& output) {
    ArenaScope scope(*ctx_.scratch);
    const CodeMatrixView& view = cuda_matrix(output.weight).codes()->view;
    const std::int64_t at_once =
        std::clamp<std::int64_t>(kExpandedBytes / n_tile_bytes(input), 1, view.n_tiles);
    const TensorView expanded = take_f16(at_once * n_tile_bytes(input) / 2);
    for (std::int64_t first = 0; first < view.n_tiles; first += at_once) {
      const std::int64_t n_tiles = std::min<std::int64_t>(at_once, view.n_tiles - first);
      expand(view, static_cast<int>(first), n_tiles, expanded.as<__half>());
      const std::int64_t column = first * kNTileColumns;
      multiply(input, expanded.data, output.out,
               {column, std::min(n_tiles * kNTileColumns, output.weight->out() - column)});
    }
  }

  struct Columns {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  // Columns of `out` (and of those that lie behind it) = alpha · rows · wᵀ.
  void multiply(const Input& input, const void* w, const TensorView& out, Columns columns) {
    BlasGemm gemm;
    gemm.type = input.rows.type;
    gemm.x = input.rows.rows;
    gemm.w = w;
    gemm.tokens = tokens_;
    gemm.columns = columns.count;
    gemm.in = input.rows.k;
    gemm.out_scale = input.out_scale;
    gemm.beta = backend_.constant(args_.accumulate);
    if (half_results_) {  // in the first half of each row of what would be F32
      gemm.out_type = DType::kF16;
      gemm.out = out.as<__half>() + columns.first;
      gemm.out_stride = 2 * out.row_stride;
    } else {
      gemm.out = out.as<float>() + columns.first;
      gemm.out_stride = out.row_stride;
    }
    backend_.blas().run(gemm, cuda_ops_of(ctx_).stream);
  }

  // A matrix in F32, or with rows that cuBLASLt does not take.
  void wide_matmul(const MatmulOutput& output) {
    const DenseWeights& weights = *cuda_matrix(output.weight).dense();
    const std::int64_t in = output.weight->in();
    if (weights.type != DType::kF32 || !blas_takes(weights, in) || args_.x.row_stride != in ||
        args_.multiplier != 1.0f) {
      dense_gemv_rows(ctx_, args_, output);
      return;
    }
    BlasGemm gemm;
    gemm.type = DType::kF32;
    gemm.x = args_.x.data;
    gemm.w = weights.rows;
    gemm.tokens = tokens_;
    gemm.columns = output.weight->out();
    gemm.in = in;
    gemm.out = output.out.data;
    gemm.out_stride = output.out.row_stride;
    gemm.out_scale = backend_.constant(true);
    gemm.beta = backend_.constant(args_.accumulate);
    backend_.blas().run(gemm, cuda_ops_of(ctx_).stream);
    add_own_bias(output);
  }
  void add_own_bias(const MatmulOutput& output) {
    if (has_bias(output)) add_bias(ctx_, output.out, bias_of(output));
  }

  ExecContext& ctx_;
  const MatmulArgs& args_;
  CudaBackend& backend_;
  std::int64_t tokens_;
  bool half_results_;
  bool activated_ = false;  // products did it
};

}  // namespace

ActF16 act_f16_for(const PackedMatrix* weight) {
  ActF16 rows;
  if (const CodeWeights* codes = cuda_matrix(weight).codes()) {
    rows.k = std::int64_t{codes->view.k_steps} * kKStepSize;
    if (!codes->is_identity) rows.feature_of_k = codes->feature_of_k;
  } else {
    rows.k = weight->in();
    rows.type = cuda_matrix(weight).dense()->type;
  }
  return rows;
}

void activate_into_halves(ExecContext& ctx, const ActivateArgs& args, bool halves) {
  const StagedInput& out = *args.staged_out;
  ArenaScope scope(*ctx.scratch);
  const auto stride = [&](const TensorView& view) { return (halves ? 2 : 1) * view.row_stride; };
  ActF16ActivateArgs rows;
  rows.gate = args.gate.data;
  rows.up = args.up.data;
  rows.gate_stride = stride(args.gate);
  rows.up_stride = stride(args.up);
  rows.halves = halves;
  rows.tokens = args.gate.rows();
  rows.width = args.gate.columns();
  rows.to = act_f16_for(out.reader);
  rows.to.rows = out.rows.data;
  rows.act_scale = out.row_scales;
  rows.row_largest = ctx.scratch->take_f32({rows.tokens}).as<float>();
  make_act_f16_activate(ctx, rows, args);
}

std::int64_t staged_input_width(const ExecContext& ctx, const PackedMatrix& reader,
                                std::int64_t tokens) {
  if (!is_large(ctx, reader, tokens)) return staged_fragments_width(ctx, reader, tokens);
  if (!reads_act_f16(&reader)) return 0;
  const ActF16 rows = act_f16_for(&reader);
  const int compute_capability = cuda_ops_of(ctx).backend->facts().compute_capability;
  const bool staged = fits_act_f16_smem(compute_capability, reader.in(), rows.k);
  return rows.type == DType::kF16 && staged ? rows.k : 0;
}

bool is_large(const ExecContext& ctx, const PackedMatrix& matrix, std::int64_t tokens) {
  const CudaBackend& backend = *cuda_ops_of(ctx).backend;
  const bool decodes = cuda_matrix(&matrix).codes() != nullptr && has_wgmma(backend.facts());
  return !ctx.deterministic && tokens >= backend.launch_plan().large_or_wgmma_from(decodes);
}

bool large_can_fuse_norm(const MatmulArgs& args) {
  return can_fuse_norm_act_f16(args.x, *args.norm) &&
         std::all_of(args.outputs.begin(), args.outputs.end(),
                     [](const MatmulOutput& output) { return reads_act_f16(output.weight); });
}

void gemm_large(ExecContext& ctx, const MatmulArgs& args) { GemmLarge(ctx, args).run(); }

void dense_gemv_rows(ExecContext& ctx, const MatmulArgs& args, const MatmulOutput& output) {
  for (std::int64_t first = 0; first < args.x.rows(); first += kMaxDenseTokens) {
    const std::int64_t count = std::min<std::int64_t>(kMaxDenseTokens, args.x.rows() - first);
    const DenseWeights& weights = *cuda_matrix(output.weight).dense();
    DenseGemvArgs gemm;
    gemm.x = slice_rows(args.x, first, count);
    gemm.rows = weights.rows;
    gemm.type = weights.type;
    gemm.out = slice_rows(output.out, first, count);
    gemm.bias = bias_of(output);
    gemm.multiplier = args.multiplier;
    gemm.accumulate = args.accumulate;
    dense_gemv(ctx, gemm);
  }
}

}  // namespace bl::cuda
