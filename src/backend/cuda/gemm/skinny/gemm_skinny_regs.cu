#include "backend/cuda/gemm/skinny/gemm_skinny_regs.h"

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/gemm/skinny/regs_cta.cuh"
#include "backend/cuda/gemm/width_sets.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

template <int TokenTiles, ScaleKind kKind, WidthSet kWidths, int NTiles>
__global__ void __launch_bounds__(kRegsThreads, 1)
    gemm_skinny_regs_kernel(const __grid_constant__ RegsLaunch launch) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte memory[];
  pdl_trigger();
  RegsCta<TokenTiles, kKind, kWidths, NTiles> cta(
      launch, *reinterpret_cast<RegsSmem<TokenTiles, NTiles>*>(memory), memory);
  cta.begin();
  cta.run();
#endif
}

// Lays out the rings; false where they have no room.
template <int TokenTiles, int NTiles>
bool lay_out(std::size_t bytes, RegsLaunch& launch) {
  int scales = 0;
  for (int i = 0; i < launch.args.count; ++i) {
    scales = std::max(scales, kWarpKSteps * scale_bytes(launch.args.matrices[i].view.kind));
  }
  launch.scales = scales;
  int n_tile = 0;
  for (const std::int32_t codes : launch.work.code_bytes) n_tile += codes + scales;
  n_tile *= NTiles;
  int at = static_cast<int>(sizeof(RegsSmem<TokenTiles, NTiles>));
  const int room = static_cast<int>(bytes) - at;
  launch.stages = std::min({room / n_tile, kMaxRegsStages});
  if (launch.stages > 6) launch.stages = kMaxRegsStages <= room / n_tile ? kMaxRegsStages : 6;
  // More than one round of two strips makes the activations late; of one strip it hardly makes a
  // difference (bench/ladder/few_tokens).
  launch.early = NTiles > 1 ? 1 : std::min(launch.stages, 3);
  for (int w = 0; w < kRegsWarps; ++w) {
    launch.pipeline_offset[w] = at;
    launch.codes[w] = launch.work.code_bytes[static_cast<std::size_t>(w)];
    at += launch.stages * NTiles * (launch.codes[w] + scales);
  }
  return launch.stages >= kFewestStages;
}

using RegsKernel = void (*)(RegsLaunch);

template <int TokenTiles, ScaleKind kKind, int NTiles>
RegsKernel kernel_of_kind(WidthSet widths) {
  constexpr bool kGptq = kKind != ScaleKind::kExl2;
  return with_width_set<kGptq>(widths, [&]<WidthSet kWidths>() -> RegsKernel {
    return gemm_skinny_regs_kernel<TokenTiles, kKind, kWidths, NTiles>;
  });
}

template <int TokenTiles, int NTiles>
RegsKernel kernel_of(const PackedGemmArgs& args) {
  const WidthSet widths = widths_of(args);
  if (args.matrices[0].view.kind == ScaleKind::kExl2) {
    return kernel_of_kind<TokenTiles, ScaleKind::kExl2, NTiles>(widths);
  }
  constexpr WidthSet kUsual = width_set({4});
  return widths == kUsual && has_no_zeros(args)
             ? gemm_skinny_regs_kernel<TokenTiles, ScaleKind::kGptq, kUsual, NTiles>
             : kernel_of_kind<TokenTiles, ScaleKind::kGptqZeros4, NTiles>(widths);
}

template <int TokenTiles, int NTiles>
void start(ExecContext& ctx, RegsLaunch& launch_args) {
  const std::size_t bytes = cuda_ops_of(ctx).backend->facts().shared_bytes_per_cta;
  BL_CHECK((lay_out<TokenTiles, NTiles>(bytes, launch_args)));
  const RegsKernel kernel = kernel_of<TokenTiles, NTiles>(launch_args.args);
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
  const auto ctas =
      static_cast<unsigned>(launch_args.work.cta_ranges.ctas * launch_args.work.k_splits);
  launch(shape_of(ctx, dim3(ctas), kRegsThreads, bytes), kernel, launch_args);
}

}  // namespace

bool is_small_work(const PackedGemmArgs& args, int ctas) {
  int k_steps = args.matrices[0].view.k_steps;
  std::int64_t all = 0;
  for (int i = 0; i < args.count; ++i) {
    const CodeMatrixView& m = args.matrices[i].view;
    k_steps = std::min(k_steps, m.k_steps);
    all += std::int64_t{m.n_tiles} * m.k_steps;
  }
  return is_small_cta_range(k_steps, all, ctas);
}

RegsWork plan_skinny_regs(CudaBackend& backend, const PackedGemmArgs& args,
                          std::span<const CodeWeights* const> weights, int late) {
  const DeviceFacts& facts = backend.facts();
  if (!facts.dependent_launch()) return {};
  const int ctas = facts.multiprocessors;
  // Results of parts are those of one matrix.
  const int max_k_splits =
      weights.size() == 1
          ? std::clamp(static_cast<int>(kMaxSplitKNTiles) / weights[0]->view.n_tiles, 1,
                       static_cast<int>(kMaxPartials))
          : 1;
  RegsLaunch launch_args;
  launch_args.args = args;
  RegsWork& work = launch_args.work;
  work.k_splits = 1;
  work.upper_adds = true;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const DeviceRegsPlan& regs =
        backend.partitions().find_regs_plan(*weights[i], ctas, max_k_splits);
    if (regs.k_splits == 0) return {};
    work.k_splits = regs.k_splits;
    work.upper_adds = work.upper_adds && regs.upper_adds;
    work.quads[i] = regs.quads;
    for (std::size_t w = 0; w < kRegsWarps; ++w) {
      work.code_bytes[w] = std::max(work.code_bytes[w], regs.code_bytes[w]);
    }
  }
  const CtaRanges cta_ranges = backend.partitions().find(
      weights, {ctas / work.k_splits, args.gated, false, work.k_splits == 1 ? late : 0,
                !has_one_input_layout(args)});
  work.cta_ranges = {CtaRangeBegins(cta_ranges), cta_ranges.ctas};
  int longest = 0;  // a pair is one strip
  for (std::size_t i = 0; i + 1 < cta_ranges.host_begins.size(); ++i) {
    longest = std::max(longest, cta_ranges.host_begins[i + 1] - cta_ranges.host_begins[i]);
  }
  // Two strips at a time for a few tokens; for more they take more registers than there are.
  const std::size_t bytes = facts.shared_bytes_per_cta;
  work.pairs = args.tokens <= kTokenTile && lay_out<1, 2>(bytes, launch_args);
  if (!work.pairs && !lay_out<2, 1>(bytes, launch_args)) return {};
  return longest <= (args.gated ? kMaxRangeNTilePairs : kMaxRangeNTiles) ? work : RegsWork{};
}

void gemm_skinny_regs(ExecContext& ctx, const PackedGemmArgs& args, const RegsWork& work) {
  BL_CHECK(args.tokens > 0 && args.tokens <= kMaxSkinnyTokens);
  check_packed_gemm(args);
  BL_CHECK(work.k_splits == 1 ||
           (args.count == 1 && !args.accumulate && args.matrices[0].bias == nullptr));
  RegsLaunch launch_args;
  launch_args.args = args;
  launch_args.work = work;
  if (args.tokens > kTokenTile) {
    start<2, 1>(ctx, launch_args);
  } else if (work.pairs) {
    start<1, 2>(ctx, launch_args);
  } else {
    start<1, 1>(ctx, launch_args);
  }
}

}  // namespace bl::cuda
