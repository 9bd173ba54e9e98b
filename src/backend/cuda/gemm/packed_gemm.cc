#include "backend/cuda/gemm/packed_gemm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/gemm/activations/staged_input.h"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/gemm/large/gemm_large.h"
#include "backend/cuda/gemm/packed_gemm_args.h"
#include "backend/cuda/gemm/skinny/gemm_skinny_regs.h"
#include "backend/cuda/gemm/splitk/reduce_partials.h"
#include "backend/cuda/scratch_plan.h"
#include "backend/cuda/weights/cuda_matrix.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

static_assert(kStagedTileTokens == kMaxSkinnyTokens);

TensorView take_f16(Arena& arena, std::int64_t count) {
  return arena.take(DType::kF16, {std::max<std::int64_t>(count, 1)});
}

// Where a matrix has its channels, without memory for them.
PackTarget target_of(const CodeWeights& weights) {
  PackTarget target;
  target.feature_of_k = weights.feature_of_k;
  target.k_steps = weights.view.k_steps;
  target.k_blocks = weights.view.k_blocks;
  target.k_block_count = weights.view.k_block_count;
  return target;
}

// Makes the activations ready for one matrix, or finds the ones made for its equal.
class ActivationPacker {
 public:
  // `at_once`: tokens of a launch.
  ActivationPacker(ExecContext& ctx, std::int64_t tokens, int at_once)
      : ctx_(ctx), tokens_(tokens) {
    args_.tile = at_once;
  }

  const PackTarget& target_for(const CodeWeights& weights) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] == key_of(weights)) return args_.targets[i];
    }
    BL_CHECK(args_.count < kMaxMatrices);
    const std::int64_t rows = packed_act_rows(tokens_);
    PackTarget& target = args_.targets[args_.count++];
    target = target_of(weights);
    target.fragments =
        take_f16(*ctx_.scratch, rows * weights.view.k_steps * kKStepSize).as<std::uint32_t>();
    if (args_.sums)
      target.k_block_sums = ctx_.scratch->take_f32({rows, target.k_steps}).as<float>();
    keys_.push_back(key_of(weights));
    return target;
  }

  // The products add activations up themselves.
  void omit_k_block_sums() { args_.sums = false; }

  // Notes that are to be zeros behind it.
  void clears(float* row_scales, int count) {
    args_.zeros = row_scales;
    args_.zero_count = count;
  }

  const float* run(const MatmulArgs& args, const InputNorm& norm) {
    args_.x = args.x;
    args_.partials = args.x_partials;
    args_.x_sum = args.x_sum;
    args_.row_scales = ctx_.scratch->take_f32({tokens_}).as<float>();
    args_.norm = norm;
    pack_activations(ctx_, args_);
    return args_.row_scales;
  }

 private:
  // Sums of chunks go by how chunks are cut, fragments do not.
  std::pair<std::uint64_t, std::int32_t> key_of(const CodeWeights& weights) const {
    return {args_.sums ? weights.input_layout : weights.permutation, weights.view.k_steps};
  }

  ExecContext& ctx_;
  std::int64_t tokens_;
  PackActivationsArgs args_;
  std::vector<std::pair<std::uint64_t, std::int32_t>> keys_;
};

InputNorm input_norm(const NormArgs* norm, std::int64_t in) {
  if (norm == nullptr) return {};
  return {true, norm->weight.empty() ? nullptr : norm->weight.as<const float>(),
          norm->unit_offset ? 1.0f : 0.0f, norm->eps, 1.0f / static_cast<float>(in)};
}

void add_matrix(PackedGemmArgs& gemm_args, const MatmulOutput& output, const TensorView& out) {
  const CodeWeights& codes = *cuda_matrix(output.weight).codes();
  PackedGemmMatrix& m = gemm_args.matrices[gemm_args.count++];
  m.view = codes.view;
  m.widths = codes.plan.widths();
  m.copy_block_bytes = static_cast<std::int32_t>(codes.max_copy_block_bytes);
  m.copy_block_scale_bytes = static_cast<std::int32_t>(codes.max_copy_block_scale_bytes);
  m.fragment_offset_of_feature = codes.fragment_offset_of_feature;
  m.is_identity = codes.is_identity;
  m.features = static_cast<int>(output.weight->in());
  m.padded = std::int64_t{codes.view.k_steps} * kKStepSize != output.weight->in();
  m.out = out.as<float>();
  m.out_stride = out.row_stride;
  m.bias = bias_of(output);
}

// The number of a matrix's gather among those of the launch: that of an earlier equal one, or the
// next.
int input_layout_number(const PackedGemmArgs& args, std::span<const CodeWeights* const> weights,
                        std::size_t matrix) {
  int next = 0;
  for (std::size_t i = 0; i < matrix; ++i) {
    if (weights[i]->input_layout == weights[matrix]->input_layout)
      return args.matrices[i].input_layout;
    next = std::max(next, args.matrices[i].input_layout + 1);
  }
  return next;
}

// Products with packed codes that one launch can make.
struct PackedGemm {
  PackedGemmArgs args;
  std::array<const CodeWeights*, kMaxMatrices> weights{};
  std::array<std::span<const CopyBlock>, kMaxMatrices> copy_blocks{};  // of a strip of each matrix
  bool k_splits = false;    // the matrices are parts of the slots of the first of `weights`
  bool apart = false;       // they read inputs of their own
  TensorView partials_out;  // of several tokens: where results of parts of the slots may stay

  CtaRanges cta_ranges(CudaBackend& backend, bool spare, int late = 0) const {
    const int ctas = backend.facts().multiprocessors;
    if (k_splits) return backend.partitions().find_k_splits(*weights[0], ctas);
    return backend.partitions().find({weights.data(), static_cast<std::size_t>(args.count)},
                                     {ctas, args.gated, spare, late, spare && apart});
  }
};

// The only matrix becomes its two parts; the second one's results are a rest.
void split_k(PackedGemm& gemm, const TensorView& partials_out) {
  const CodeWeights& weights = *gemm.weights[0];
  BL_CHECK(gemm.args.count == 1 && weights.k_splits.size() == 2);
  const PackedGemmMatrix whole = gemm.args.matrices[0];
  // A part reads its own channels alone; but a norm is that of the whole row.
  const bool is_identity = whole.is_identity && !gemm.args.norm.present;
  int first_feature = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    PackedGemmMatrix& k_split = gemm.args.matrices[i];
    k_split = whole;
    k_split.view = weights.k_splits[i].view;
    k_split.fragment_offset_of_feature = weights.k_splits[i].fragment_offset_of_feature;
    k_split.is_identity = is_identity;
    if (!is_identity) continue;
    k_split.first_feature = first_feature;
    k_split.features = k_split.view.k_steps * kKStepSize;
    first_feature += k_split.features;
  }
  PackedGemmMatrix& second = gemm.args.matrices[1];
  second.out = partials_out.as<float>();
  second.bias = nullptr;
  second.partial = nullptr;
  second.fresh = true;
  gemm.args.count = 2;
  gemm.k_splits = true;
}

// Where no share of one token's product has matrices of two gathers, a CTA knows of one.
void name_input_layouts(const ExecContext& ctx, PackedGemm& gemm) {
  if (!gemm.apart || gemm.args.gated) return;
  const CtaRanges cta_ranges = gemm.cta_ranges(*cuda_ops_of(ctx).backend, true);
  if (max_input_layouts(gemm.args, cta_ranges) > 1) return;
  for (PackedGemmMatrix& m : gemm.args.matrices) m.input_layout = 0;
}

// Finds the pieces of one token's product.
void find_copy_blocks(const DeviceFacts& facts, PackedGemm& gemm) {
  gemm.args.pairs = can_pair_k_blocks(facts, gemm.args);
  const auto find = [&](const auto& of) {
    return std::span<const CopyBlock>(gemm.args.pairs ? of.paired.copy_blocks : of.copy_blocks);
  };
  for (std::size_t i = 0; i < static_cast<std::size_t>(gemm.args.count); ++i) {
    gemm.copy_blocks[i] =
        gemm.k_splits ? find(gemm.weights[0]->plan.k_splits[i]) : find(gemm.weights[i]->plan);
  }
}

PackedGemm make_packed_gemm(const ExecContext& ctx, const MatmulArgs& args,
                            std::span<const MatmulOutput* const> outputs, std::int64_t tokens) {
  const bool gated = args.activation != nullptr && !args.activation->deferred_gate_mul;
  PackedGemm gemm;
  gemm.args.regardless_of_batch = ctx.deterministic;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    gemm.weights[i] = cuda_matrix(outputs[i]->weight).codes();
    add_matrix(gemm.args, *outputs[i], gated ? args.activation->out : outputs[i]->out);
    gemm.args.matrices[i].input_layout = input_layout_number(gemm.args, gemm.weights, i);
  }
  gemm.apart = !has_one_input_layout(gemm.args);
  gemm.args.x = args.x.as<const float>();
  gemm.args.x_stride = args.x.row_stride;
  gemm.args.in = static_cast<int>(outputs[0]->weight->in());
  gemm.args.norm = input_norm(args.norm, gemm.args.in);
  gemm.args.multiplier = args.multiplier;
  gemm.args.accumulate = args.accumulate;
  gemm.args.gated = gated;
  if (gated) gemm.args.activation = activation_parameters(*args.activation);
  gemm.args.tokens = static_cast<int>(std::min<std::int64_t>(kMaxSkinnyTokens, tokens));
  const DeviceFacts& facts = cuda_ops_of(ctx).backend->facts();
  if (tokens > 1) {
    gemm.partials_out = args.partials_out;
    find_copy_blocks(facts, gemm);
    return gemm;
  }
  gemm.args.x_partial = args.x_partials.as<const float>();
  gemm.args.gate_alone = args.activation != nullptr && !gated;
  if (!args.x_deferred_mul.empty()) {
    gemm.args.x_partial = args.x_deferred_mul.as<const float>();
    gemm.args.x_partial_multiplies = true;
  }
  gemm.args.matrices[0].partial = args.out_partials.as<const float>();
  if (!args.partials_out.empty()) split_k(gemm, args.partials_out);
  name_input_layouts(ctx, gemm);
  find_copy_blocks(facts, gemm);
  return gemm;
}

// How activations that were made ready before are multiplied.
struct Way {
  int at_once = 0;  // tokens of a launch
  int late = 0;     // CTAs of the ring, see PartitionRequest
  RegsWork regs;    // if it exists
};

// `prepares`: by a launch of prepare() before.
Way way_of(const ExecContext& ctx, const PackedGemm& packed, std::int64_t tokens, bool prepares) {
  CudaBackend& backend = *cuda_ops_of(ctx).backend;
  const LaunchPlan& plan = backend.launch_plan();
  Way way;
  way.at_once = max_skinny_tokens(backend.facts());
  const bool begins_late = prepares && tokens <= way.at_once;
  const bool small = is_small_work(packed.args, backend.facts().multiprocessors);
  const std::int64_t skinny_smem_from = small ? plan.small_skinny_smem_from : plan.skinny_smem_from;
  if (tokens > 1 && tokens < skinny_smem_from && !ctx.deterministic) {
    const auto count = static_cast<std::size_t>(packed.args.count);
    const int late = begins_late ? pack_ctas(tokens, false) : 0;
    way.regs = plan_skinny_regs(backend, packed.args, {packed.weights.data(), count}, late);
  }
  if (begins_late && !way.regs.exists()) way.late = pack_ctas(tokens, true);
  return way;
}

// The same of a matrix alone.
Way way_of_one(const ExecContext& ctx, const PackedMatrix& weight, std::int64_t tokens) {
  const MatmulOutput output{&weight, {}, {}};
  const MatmulOutput* const outputs[] = {&output};
  return way_of(ctx, make_packed_gemm(ctx, {}, outputs, tokens), tokens, false);
}

// What the launch of these products asks for of the cache.
KeyPrefetch keys_ahead(const ExecContext& ctx, const MatmulArgs& args) {
  if (args.attention_behind != nullptr) {
    return plan_key_prefetch(ctx, *args.attention_behind, KeyPrefetchSite::kQueries);
  }
  if (ctx.next_attention == nullptr) return {};
  if (args.activation != nullptr) {
    return plan_key_prefetch(ctx, *ctx.next_attention, KeyPrefetchSite::kGate);
  }
  return args.accumulate ? plan_key_prefetch(ctx, *ctx.next_attention, KeyPrefetchSite::kDown)
                         : KeyPrefetch{};
}

// The same of weights; `keys`: it asks for keys, too.
WeightPrefetch weights_ahead(const ExecContext& ctx, const MatmulArgs& args, bool keys) {
  const NextWeights& next = ctx.next_weights;
  std::array<const CodeWeights*, NextWeights::kMost> codes{};
  for (int i = 0; i < next.count; ++i) codes[i] = cuda_matrix(next.matrices[i]).codes();
  const WeightPrefetchSite site = args.attention_behind != nullptr ? WeightPrefetchSite::kQueries
                                  : next.partly_issued             ? WeightPrefetchSite::kSecond
                                  : keys                           ? WeightPrefetchSite::kBesideKeys
                                                                   : WeightPrefetchSite::kOther;
  return plan_weight_prefetch({codes.data(), static_cast<std::size_t>(next.count)}, site);
}

Prefetches read_ahead(const ExecContext& ctx, const MatmulArgs& args) {
  Prefetches ahead{keys_ahead(ctx, args), {}};
  ahead.weights = weights_ahead(ctx, args, ahead.keys.k != nullptr);
  return ahead;
}

bool makes_own(const ExecContext& ctx, std::int64_t tokens) {
  return !ctx.deterministic && tokens < cuda_ops_of(ctx).backend->launch_plan().skinny_from;
}

void multiply_tiles(ExecContext& ctx, PackedGemm& packed, const Way& way, std::int64_t tokens) {
  CtaRanges cta_ranges;
  if (!way.regs.exists())
    cta_ranges = packed.cta_ranges(*cuda_ops_of(ctx).backend, false, way.late);
  for (std::int64_t first = 0; first < tokens; first += way.at_once) {
    packed.args.first_token = first;
    packed.args.tokens = static_cast<int>(std::min<std::int64_t>(way.at_once, tokens - first));
    if (way.regs.exists()) {
      gemm_skinny_regs(ctx, packed.args, way.regs);
    } else {
      gemm(ctx, packed.args, cta_ranges);
    }
  }
}

// Results of parts of the slots beside one another; added up unless they may stay so.
void multiply_k_splits(ExecContext& ctx, PackedGemm& packed, Way& way, std::int64_t tokens) {
  PackedGemmMatrix& m = packed.args.matrices[0];
  const std::int64_t columns = m.view.out;
  const bool stay = !packed.partials_out.empty();
  const TensorView k_splits =
      stay ? packed.partials_out : ctx.scratch->take_f32({way.regs.k_splits, tokens, columns});
  PartialSums sums{.to = view_of(m.out, {tokens, columns}), .partials = k_splits, .bias = m.bias};
  sums.to.row_stride = m.out_stride;
  if (packed.args.accumulate) sums.from = sums.to;
  m.out = k_splits.as<float>();
  m.out_stride = columns;
  m.bias = nullptr;
  packed.args.accumulate = false;
  way.regs.k_split_rows = static_cast<int>(tokens);
  multiply_tiles(ctx, packed, way, tokens);
  if (!stay) reduce_partials(ctx, sums);
}

void multiply(ExecContext& ctx, PackedGemm& packed, Way& way, std::int64_t tokens) {
  if (way.regs.k_splits > 1) return multiply_k_splits(ctx, packed, way, tokens);
  multiply_tiles(ctx, packed, way, tokens);
}

void multiply_staged(ExecContext& ctx, const StagedInput& half, PackedGemm& packed) {
  const std::int64_t tokens = half.rows.rows();
  Way way = way_of(ctx, packed, tokens, false);
  BL_CHECK(packed.args.count == 1 && way.regs.exists());
  packed.args.matrices[0].fragments = half.rows.as<const std::uint32_t>();
  packed.args.row_scales = half.row_scales;
  packed.args.feature_of_k = packed.weights[0]->feature_of_k;
  multiply(ctx, packed, way, tokens);
}

}  // namespace

void packed_gemm(ExecContext& ctx, const MatmulArgs& args,
                 std::span<const MatmulOutput* const> outputs) {
  ArenaScope scope(*ctx.scratch);
  const std::int64_t tokens = (args.staged_x != nullptr ? args.staged_x->rows : args.x).rows();
  CudaBackend& backend = *cuda_ops_of(ctx).backend;
  PackedGemm packed = make_packed_gemm(ctx, args, outputs, tokens);
  if (args.staged_x != nullptr) return multiply_staged(ctx, *args.staged_x, packed);
  if (makes_own(ctx, tokens)) {
    const CtaRanges cta_ranges = packed.cta_ranges(backend, true);
    if (makes_own_input(backend.facts(), packed.args, cta_ranges)) {
      return gemv_i8(ctx, packed.args, cta_ranges,
                     {packed.copy_blocks.data(), static_cast<std::size_t>(packed.args.count)},
                     read_ahead(ctx, args));
    }
  }
  Way way = way_of(ctx, packed, tokens, true);
  ActivationPacker packer(ctx, tokens, way.at_once);
  const StagedInput* half = packed.args.gated ? args.activation->staged_out : nullptr;
  if (way.regs.exists()) {
    packer.omit_k_block_sums();
    if (half != nullptr) {
      packed.args.stage_out = staged_fragments_of(*half);
      packer.clears(half->row_scales, static_cast<int>(tokens));
    }
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const PackTarget& target = packer.target_for(*packed.weights[i]);
    packed.args.matrices[i].fragments = target.fragments;
    packed.args.matrices[i].k_block_sums = target.k_block_sums;
  }
  packed.args.row_scales = packer.run(args, packed.args.norm);
  multiply(ctx, packed, way, tokens);
  if (half != nullptr && !way.regs.exists()) pack_staged(ctx, args.activation->out, *half);
}

bool has_partials(const MatmulArgs& args) {
  return !args.x_partials.empty() || !args.out_partials.empty() || !args.partials_out.empty();
}

namespace {

// Whether gemv_i8() makes it, of one token; the outputs' matrices have codes of one kind.
bool is_token_gemm(const ExecContext& ctx, const MatmulArgs& args) {
  if (args.staged_x != nullptr || args.x.rows() != 1 || !makes_own(ctx, 1)) return false;
  std::array<const MatmulOutput*, kMaxMatrices> outputs{};
  for (std::size_t i = 0; i < args.outputs.size(); ++i) outputs[i] = &args.outputs[i];
  CudaBackend& backend = *cuda_ops_of(ctx).backend;
  const PackedGemm packed = make_packed_gemm(ctx, args, {outputs.data(), args.outputs.size()}, 1);
  return makes_own_input(backend.facts(), packed.args, packed.cta_ranges(backend, true));
}

bool one_token_takes_partials(const ExecContext& ctx, const MatmulArgs& args) {
  if (!args.x_sum.empty()) return false;
  if (!args.partials_out.empty() && partials_left(ctx, *args.outputs[0].weight, 1) == 0)
    return false;
  return is_token_gemm(ctx, args);
}

}  // namespace

bool can_defer_gate_mul(const ExecContext& ctx, const MatmulArgs& args) {
  return args.outputs.size() == 2 && is_exl2(args.outputs[0].weight) &&
         is_exl2(args.outputs[1].weight) &&
         is_plain_silu(activation_parameters(*args.activation)) && is_token_gemm(ctx, args);
}

bool can_apply_deferred_mul(const ExecContext& ctx, const MatmulArgs& args) {
  return args.outputs.size() == 1 && is_exl2(args.outputs[0].weight) && args.norm == nullptr &&
         args.activation == nullptr && args.x_partials.empty() && is_token_gemm(ctx, args);
}

// Where gate and up read inputs of their own: a CTA of their product would have to make both ready,
// where it makes one if it has strips of one matrix alone (bench/ladder/exl2_gemv).
bool defers_gate_mul(const ExecContext& ctx, const GatedMatrices& matrices,
                     const ActivateArgs& activation) {
  const CudaBackend& backend = *cuda_ops_of(ctx).backend;
  if (activation.gate.rows() != 1 || !makes_own(ctx, 1) || !backend.facts().dependent_launch() ||
      !is_plain_silu(activation_parameters(activation))) {
    return false;
  }
  if (!is_exl2(matrices.gate) || !is_exl2(matrices.up) || !is_exl2(matrices.down)) return false;
  return cuda_matrix(matrices.gate).codes()->input_layout !=
         cuda_matrix(matrices.up).codes()->input_layout;
}

bool can_take_partials(const ExecContext& ctx, const MatmulArgs& args) {
  const std::int64_t tokens = (args.staged_x != nullptr ? args.staged_x->rows : args.x).rows();
  if (tokens == 1) return one_token_takes_partials(ctx, args);
  if (ctx.deterministic || makes_own(ctx, tokens) ||
      is_large(ctx, *args.outputs[0].weight, tokens)) {
    return false;
  }
  // Rows are added up by prepare(), before their norm; nobody adds rests of results up.
  if (!args.x_partials.empty() && args.norm == nullptr) return false;
  if (!args.out_partials.empty()) return false;
  return args.partials_out.empty() ||
         (args.accumulate && args.outputs[0].bias.empty() &&
          args.partials_out.rows() == partials_left(ctx, *args.outputs[0].weight, tokens));
}

std::int64_t partials_left(const ExecContext& ctx, const PackedMatrix& weight,
                           std::int64_t tokens) {
  const CodeWeights* codes = cuda_matrix(&weight).codes();
  if (codes == nullptr || !cuda_ops_of(ctx).backend->facts().dependent_launch()) return 0;
  if (tokens == 1) return !codes->k_splits.empty() && makes_own(ctx, tokens) ? 1 : 0;
  if (ctx.deterministic || makes_own(ctx, tokens) || is_large(ctx, weight, tokens)) return 0;
  const int k_splits = way_of_one(ctx, weight, tokens).regs.k_splits;
  return k_splits > 1 ? k_splits : 0;
}

StagedFragments staged_fragments_of(const StagedInput& half) {
  const CodeWeights& codes = *cuda_matrix(half.reader).codes();
  return {half.rows.as<std::uint16_t>(), half.row_scales, codes.fragment_offset_of_feature,
          codes.view.k_steps, static_cast<std::int32_t>(half.rows.rows())};
}

bool is_staged_fragments(const ExecContext& ctx, const StagedInput& half) {
  return !is_large(ctx, *half.reader, half.rows.rows());
}

std::int64_t staged_fragments_width(const ExecContext& ctx, const PackedMatrix& reader,
                                    std::int64_t tokens) {
  const CodeWeights* codes = cuda_matrix(&reader).codes();
  if (ctx.deterministic || codes == nullptr || codes->fragment_offset_of_feature == nullptr)
    return 0;
  const std::int64_t padded_k = std::int64_t{codes->view.k_steps} * kKStepSize;
  // Slots without a channel would have to be cleared.
  if (padded_k != reader.in() || makes_own(ctx, tokens)) return 0;
  if (max_skinny_tokens(cuda_ops_of(ctx).backend->facts()) != kStagedTileTokens) return 0;
  return way_of_one(ctx, reader, tokens).regs.exists() ? padded_k : 0;
}

void pack_staged(ExecContext& ctx, const TensorView& x, const StagedInput& half) {
  PackActivationsArgs args;
  args.x = x;
  args.count = 1;
  args.targets[0] = target_of(*cuda_matrix(half.reader).codes());
  args.targets[0].fragments = half.rows.as<std::uint32_t>();
  args.tile = max_skinny_tokens(cuda_ops_of(ctx).backend->facts());
  args.sums = false;
  args.row_scales = half.row_scales;
  args.encode_row_scales = true;
  pack_activations(ctx, args);
}

}  // namespace bl::cuda
