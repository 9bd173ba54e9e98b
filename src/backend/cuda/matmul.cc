// The matmul op. It stands above gemm/ and attention/, because only here is it known what a GEMM
// may prefetch into L2 for the attention and the GEMMs behind it.

#include <array>

#include "backend/cuda/gemm/gemm_ops.h"
#include "backend/cuda/gemm/run.h"
#include "backend/cuda/prefetch/key_prefetch.h"
#include "backend/cuda/weights/cuda_matrix.h"

namespace bl::cuda {
namespace {

KeyPrefetch key_prefetch_of(const ExecContext& ctx, const MatmulArgs& args) {
  const PrefetchHint& hint = args.prefetch;
  if (hint.attention == nullptr) return {};
  if (hint.feeds_attention) {
    return plan_key_prefetch(ctx, *hint.attention, KeyPrefetchSite::kQueries);
  }
  if (args.epilogue.activation != nullptr) {
    return plan_key_prefetch(ctx, *hint.attention, KeyPrefetchSite::kGate);
  }
  if (!args.epilogue.accumulate) return {};
  return plan_key_prefetch(ctx, *hint.attention, KeyPrefetchSite::kDown);
}

Prefetches prefetches_of(const ExecContext& ctx, const MatmulArgs& args) {
  Prefetches prefetches{key_prefetch_of(ctx, args), {}};
  const NextWeights& next = args.prefetch.weights;
  std::array<const CodeWeights*, NextWeights::kMost> codes{};
  for (int i = 0; i < next.count; ++i) codes[i] = cuda_matrix(next.matrices[i]).codes();
  const WeightPrefetchSite site = args.prefetch.feeds_attention  ? WeightPrefetchSite::kQueries
                                  : next.partly_issued           ? WeightPrefetchSite::kSecond
                                  : prefetches.keys.k != nullptr ? WeightPrefetchSite::kBesideKeys
                                                                 : WeightPrefetchSite::kOther;
  prefetches.weights =
      plan_weight_prefetch({codes.data(), static_cast<std::size_t>(next.count)}, site);
  return prefetches;
}

}  // namespace

void matmul(ExecContext& ctx, const MatmulArgs& args) { matmul_by_plan(ctx, args, prefetches_of); }

}  // namespace bl::cuda
