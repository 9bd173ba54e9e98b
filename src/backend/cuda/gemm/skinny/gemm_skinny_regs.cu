#include "backend/cuda/gemm/skinny/gemm_skinny_regs.h"

#include <algorithm>

#include "backend/cuda/gemm/gemm_state.h"
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
  static_assert(sizeof(RegsSmem<TokenTiles, NTiles>) == regs_fixed_bytes({TokenTiles, NTiles}));
  const std::size_t bytes = cuda_device(ctx).facts().shared_bytes_per_cta;
  const std::optional<RegsLayout> layout =
      lay_out_regs(launch_args.args, launch_args.work, {TokenTiles, NTiles}, bytes);
  BL_CHECK(layout.has_value());
  launch_args.stages = layout->stages;
  launch_args.early = layout->early;
  launch_args.scales = layout->scales;
  std::copy_n(layout->pipeline_offset, kRegsWarps, launch_args.pipeline_offset);
  std::copy_n(layout->codes, kRegsWarps, launch_args.codes);
  const RegsKernel kernel = kernel_of<TokenTiles, NTiles>(launch_args.args);
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
  const auto ctas =
      static_cast<unsigned>(launch_args.work.cta_ranges.ctas * launch_args.work.k_splits);
  launch(shape_of(ctx, dim3(ctas), kRegsThreads, bytes), kernel, launch_args);
}

}  // namespace

void gemm_skinny_regs(ExecContext& ctx, const PackedGemmArgs& args, const SkinnyRegsPlan& plan,
                      int k_split_rows) {
  BL_CHECK(args.tokens > 0 && args.tokens <= kMaxSkinnyTokens);
  check_packed_gemm(args);
  BL_CHECK(plan.k_splits == 1 ||
           (args.count == 1 && !args.accumulate && args.matrices[0].bias == nullptr));
  DeviceTables& tables = gemm_state(ctx).tables;
  RegsLaunch launch_args;
  launch_args.args = args;
  RegsWork& work = launch_args.work;
  static_cast<RegsTiling&>(work) = plan;
  work.pairs = plan.pairs;
  work.k_split_rows = k_split_rows;
  const bool many = plan.ranges.ctas > CtaRangeBegins::kMost;
  work.cta_ranges = {CtaRangeBegins(plan.ranges, many ? tables.begins(plan.ranges) : nullptr),
                     plan.ranges.ctas};
  for (int i = 0; i < args.count; ++i) work.quads[i] = tables.quads(*plan.plans[i]);
  if (args.tokens > kTokenTile) {
    start<2, 1>(ctx, launch_args);
  } else if (work.pairs) {
    start<1, 2>(ctx, launch_args);
  } else {
    start<1, 1>(ctx, launch_args);
  }
}

}  // namespace bl::cuda
