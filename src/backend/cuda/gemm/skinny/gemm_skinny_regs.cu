#include "backend/cuda/gemm/skinny/gemm_skinny_regs.h"

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/gemm/skinny/regs_cta.cuh"
#include "backend/cuda/gemm/width_sets.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

template <int Tiles, ScaleKind kKind, WidthSet kWidths, int Strips>
__global__ void __launch_bounds__(kHeldThreads, 1)
    held_product_kernel(const __grid_constant__ HeldLaunch launch) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte memory[];
  allow_next();
  HeldCta<Tiles, kKind, kWidths, Strips> cta(
      launch, *reinterpret_cast<HeldShared<Tiles, Strips>*>(memory), memory);
  cta.begin();
  cta.run();
#endif
}

// Lays out the rings; false where they have no room.
template <int Tiles, int Strips>
bool lay_out(std::size_t bytes, HeldLaunch& launch) {
  int scales = 0;
  for (int i = 0; i < launch.args.count; ++i) {
    scales = std::max(scales, kPlaces * scale_bytes(launch.args.matrices[i].view.kind));
  }
  launch.scales = scales;
  int strip = 0;
  for (const std::int32_t codes : launch.work.code_bytes) strip += codes + scales;
  strip *= Strips;
  int at = static_cast<int>(sizeof(HeldShared<Tiles, Strips>));
  const int room = static_cast<int>(bytes) - at;
  launch.slots = std::min({room / strip, kMaxSlots});
  if (launch.slots > 6) launch.slots = kMaxSlots <= room / strip ? kMaxSlots : 6;
  // More than one round of two strips makes the activations late; of one strip it hardly makes a
  // difference (bench/ladder/few_tokens).
  launch.early = Strips > 1 ? 1 : std::min(launch.slots, 3);
  for (int w = 0; w < kHeldWarps; ++w) {
    launch.ring_at[w] = at;
    launch.codes[w] = launch.work.code_bytes[static_cast<std::size_t>(w)];
    at += launch.slots * Strips * (launch.codes[w] + scales);
  }
  return launch.slots >= kFewestSlots;
}

using HeldKernel = void (*)(HeldLaunch);

template <int Tiles, ScaleKind kKind, int Strips>
HeldKernel kernel_of_kind(WidthSet widths) {
  constexpr bool kGptq = kKind != ScaleKind::kExl2;
  return with_width_set<kGptq>(widths, [&]<WidthSet kWidths>() -> HeldKernel {
    return held_product_kernel<Tiles, kKind, kWidths, Strips>;
  });
}

template <int Tiles, int Strips>
HeldKernel kernel_of(const ProductArgs& args) {
  const WidthSet widths = widths_of(args);
  if (args.matrices[0].view.kind == ScaleKind::kExl2) {
    return kernel_of_kind<Tiles, ScaleKind::kExl2, Strips>(widths);
  }
  constexpr WidthSet kUsual = width_set({4});
  return widths == kUsual && has_no_zeros(args)
             ? held_product_kernel<Tiles, ScaleKind::kGptq, kUsual, Strips>
             : kernel_of_kind<Tiles, ScaleKind::kGptqZeros4, Strips>(widths);
}

template <int Tiles, int Strips>
void start(ExecContext& ctx, HeldLaunch& launch_args) {
  const std::size_t bytes = cuda_ops_of(ctx).backend->facts().shared_bytes_per_cta;
  BL_CHECK((lay_out<Tiles, Strips>(bytes, launch_args)));
  const HeldKernel kernel = kernel_of<Tiles, Strips>(launch_args.args);
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
  const auto ctas = static_cast<unsigned>(launch_args.work.shares.ctas * launch_args.work.parts);
  launch(shape_of(ctx, dim3(ctas), kHeldThreads, bytes), kernel, launch_args);
}

}  // namespace

bool is_small_work(const ProductArgs& args, int ctas) {
  int units = args.matrices[0].view.units;
  std::int64_t all = 0;
  for (int i = 0; i < args.count; ++i) {
    const CodeMatrixView& m = args.matrices[i].view;
    units = std::min(units, m.units);
    all += std::int64_t{m.strips} * m.units;
  }
  return is_small_share(units, all, ctas);
}

HeldWork plan_held_work(CudaBackend& backend, const ProductArgs& args,
                        std::span<const CodeWeights* const> weights, int late) {
  const DeviceFacts& facts = backend.facts();
  if (!facts.dependent_launch()) return {};
  const int ctas = facts.multiprocessors;
  // Results of parts are those of one matrix.
  const int most_parts =
      weights.size() == 1 ? std::clamp(static_cast<int>(kMostPartStrips) / weights[0]->view.strips,
                                       1, static_cast<int>(kMostRests))
                          : 1;
  HeldLaunch launch_args;
  launch_args.args = args;
  HeldWork& work = launch_args.work;
  work.parts = 1;
  work.upper_adds = true;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const HeldShares& held = backend.product_plans().find_held(*weights[i], ctas, most_parts);
    if (held.parts == 0) return {};
    work.parts = held.parts;
    work.upper_adds = work.upper_adds && held.upper_adds;
    work.quads[i] = held.quads;
    for (std::size_t w = 0; w < kHeldWarps; ++w) {
      work.code_bytes[w] = std::max(work.code_bytes[w], held.code_bytes[w]);
    }
  }
  const StripShares shares = backend.product_plans().find(
      weights,
      {ctas / work.parts, args.gated, false, work.parts == 1 ? late : 0, !has_one_gather(args)});
  work.shares = {ShareBegins(shares), shares.ctas};
  int longest = 0;  // a pair is one strip
  for (std::size_t i = 0; i + 1 < shares.host_begins.size(); ++i) {
    longest = std::max(longest, shares.host_begins[i + 1] - shares.host_begins[i]);
  }
  // Two strips at a time for a few tokens; for more they take more registers than there are.
  const std::size_t bytes = facts.shared_bytes_per_cta;
  work.pairs = args.tokens <= kTokenTile && lay_out<1, 2>(bytes, launch_args);
  if (!work.pairs && !lay_out<2, 1>(bytes, launch_args)) return {};
  return longest <= (args.gated ? kMaxSharePairs : kMaxShareStrips) ? work : HeldWork{};
}

void held_product(ExecContext& ctx, const ProductArgs& args, const HeldWork& work) {
  BL_CHECK(args.tokens > 0 && args.tokens <= kMaxProductTokens);
  check_product(args);
  BL_CHECK(work.parts == 1 ||
           (args.count == 1 && !args.accumulate && args.matrices[0].bias == nullptr));
  HeldLaunch launch_args;
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
