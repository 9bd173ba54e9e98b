#include "backend/cuda/gemm/packed_gemm.h"

#include <algorithm>

#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

InputNorm input_norm(const NormArgs* norm, std::int64_t in) {
  if (norm == nullptr) return {};
  return {true, norm->weight.empty() ? nullptr : norm->weight.as<const float>(),
          norm->unit_offset ? 1.0f : 0.0f, norm->eps, 1.0f / static_cast<float>(in)};
}

void add_matrix(PackedGemmArgs& args, const MatmulOutput& output, const TensorView& out) {
  const CodeWeights& codes = *cuda_matrix(output.weight).codes();
  PackedGemmMatrix& m = args.matrices[args.count++];
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

// The number of a matrix's input layout in the launch: that of an earlier equal one, or the next.
int input_layout_number(const PackedGemm& gemm, std::size_t matrix) {
  int next = 0;
  for (std::size_t i = 0; i < matrix; ++i) {
    const int number = gemm.args.matrices[i].input_layout;
    if (gemm.weights[i]->input_layout == gemm.weights[matrix]->input_layout) return number;
    next = std::max(next, number + 1);
  }
  return next;
}

// Turns the only matrix into its two k_splits; the results of the second are partial sums.
void split_k(PackedGemm& gemm, const TensorView& partials_out) {
  const CodeWeights& weights = *gemm.weights[0];
  BL_CHECK(gemm.args.count == 1 && weights.k_splits.size() == 2);
  const PackedGemmMatrix whole = gemm.args.matrices[0];
  // A k_split reads only its own features, but a norm needs the whole row.
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
  second.out_stride = second.view.out;
  second.bias = nullptr;
  second.partial = nullptr;
  second.fresh = true;
  gemm.args.count = 2;
  gemm.split_k = true;
}

void find_copy_blocks(const DeviceFacts& facts, PackedGemm& gemm) {
  gemm.args.pairs = can_pair_k_blocks(facts, gemm.args);
  const auto find = [&](const auto& tables) {
    return std::span<const CopyBlock>(gemm.args.pairs ? tables.paired.copy_blocks
                                                      : tables.copy_blocks);
  };
  for (std::size_t i = 0; i < static_cast<std::size_t>(gemm.args.count); ++i) {
    gemm.copy_blocks[i] =
        gemm.split_k ? find(gemm.weights[0]->plan.k_splits[i]) : find(gemm.weights[i]->plan);
  }
}

// Sets up the fusions that exist only in the int8 GEMV.
void fuse_for_gemv(const GemmProblem& problem, PartitionCache& partitions, PackedGemm& gemm) {
  const Prologue& prologue = problem.gemm.prologue;
  const Epilogue& epilogue = problem.gemm.epilogue;
  gemm.args.x_partial = prologue.partials.as<const float>();
  gemm.args.x_sum = prologue.sum.as<float>();
  gemm.args.x_sum_stride = prologue.sum.row_stride;
  gemm.args.gate_alone = epilogue.activation != nullptr && !gemm.args.gated;
  if (!prologue.deferred_mul.empty()) {
    gemm.args.x_partial = prologue.deferred_mul.as<const float>();
    gemm.args.x_partial_multiplies = true;
  }
  gemm.args.matrices[0].partial = epilogue.partials.as<const float>();
  if (!epilogue.partials_out.empty()) split_k(gemm, epilogue.partials_out);
  if (!gemm.apart || gemm.args.gated) return;
  // If no CTA has matrices of two input layouts, a CTA needs to make only one.
  const CtaRanges ranges = gemv_ranges(gemm, partitions, problem.facts.multiprocessors);
  if (max_input_layouts(gemm.args, ranges) > 1) return;
  for (PackedGemmMatrix& m : gemm.args.matrices) m.input_layout = 0;
}

}  // namespace

PackedGemm make_packed_gemm(const GemmProblem& problem, PartitionCache& partitions,
                            std::span<const MatmulOutput* const> outputs) {
  const MatmulArgs& matmul = problem.gemm;
  const ActivateArgs* activation = matmul.epilogue.activation;
  const std::int64_t tokens = matmul.tokens();
  PackedGemm gemm;
  PackedGemmArgs& args = gemm.args;
  args.regardless_of_batch = problem.deterministic;
  args.gated = activation != nullptr && !activation->deferred_gate_mul;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    gemm.weights[i] = cuda_matrix(outputs[i]->weight).codes();
    add_matrix(args, *outputs[i], args.gated ? activation->out : outputs[i]->out);
    args.matrices[i].input_layout = input_layout_number(gemm, i);
  }
  gemm.apart = !has_one_input_layout(args);
  args.x = matmul.x.as<const float>();
  args.x_stride = matmul.x.row_stride;
  args.in = static_cast<int>(outputs[0]->weight->in());
  args.norm = input_norm(matmul.prologue.norm, args.in);
  args.multiplier = matmul.epilogue.multiplier;
  args.accumulate = matmul.epilogue.accumulate;
  if (args.gated) args.activation = activation_parameters(*activation);
  args.tokens = static_cast<int>(std::min<std::int64_t>(kMaxSkinnyTokens, tokens));
  if (tokens == 1 || packs_in_cta(problem, tokens, *outputs[0]->weight)) {
    fuse_for_gemv(problem, partitions, gemm);
  } else {
    gemm.partials_out = matmul.epilogue.partials_out;
  }
  find_copy_blocks(problem.facts, gemm);
  return gemm;
}

CtaRanges gemv_ranges(const PackedGemm& gemm, PartitionCache& partitions, int ctas) {
  if (gemm.split_k) return partitions.find_k_splits(*gemm.weights[0], ctas);
  return partitions.find(
      std::span(gemm.weights.data(), static_cast<std::size_t>(gemm.args.count)),
      {.ctas = ctas, .pairs = gemm.args.gated, .spare = true, .inputs = gemm.apart});
}

}  // namespace bl::cuda
