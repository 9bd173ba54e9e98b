#pragma once
// A GEMM with packed codes of one format, EXL2 or GPTQ, as one launch of gemv_i8/ or skinny/ takes
// it. Pure host code.

#include <array>
#include <span>

#include "backend/cuda/gemm/gemm_problem.h"
#include "backend/cuda/gemm/packed_gemm_args.h"
#include "backend/cuda/gemm/partition/cta_ranges.h"

namespace bl::cuda {

struct PackedGemm {
  // For the first launch; the addresses of the activations and of x are still missing.
  PackedGemmArgs args;
  std::array<const CodeWeights*, kMaxMatrices> weights{};
  // The copy_blocks of one n_tile of each matrix, for the int8 GEMV.
  std::array<std::span<const CopyBlock>, kMaxMatrices> copy_blocks{};
  bool split_k = false;     // one token: the matrices are the two k_splits of weights[0]
  bool apart = false;       // the matrices read different input layouts
  TensorView partials_out;  // several tokens: where the partial sums may stay
};

// `outputs`: the outputs of `gemm` whose codes have this format.
PackedGemm make_packed_gemm(const GemmProblem& problem, PartitionCache& partitions,
                            std::span<const MatmulOutput* const> outputs);

// Returns the n_tiles of each CTA of an int8 GEMV.
CtaRanges gemv_ranges(const PackedGemm& gemm, PartitionCache& partitions, int ctas);

}  // namespace bl::cuda
