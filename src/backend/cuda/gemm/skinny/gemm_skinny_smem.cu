#include "backend/cuda/gemm/packed_gemm_args.h"

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/skinny/copy_block_mma.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"
#include "backend/cuda/gemm/epilogue.cuh"
#include "backend/cuda/gemm/width_sets.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = kProductThreads + 32;  // the last warp issues the copies
struct Launch {
  ProductArgs args;
  RingShape ring;
  const std::int32_t* begins = nullptr;  // of shares
  // In shared memory, behind the barriers: sums of the warps, the ring.
  int ring_at = 0;
};

// Sums of a group wait while the next group's are made; with many tokens the ring needs the room.
template <int Tiles>
constexpr int kHalves = Tiles == 1 ? 2 : 1;

// What lies in shared memory before all else.
struct alignas(128) Shared {
  std::uint64_t barriers[2 * kMaxRingSlots];
  float token_scales[kMaxProductTokens];
  FinishedGroup finished[2];
};

// Where the results of a group of strips go. A thread has the same ones of both groups of a gated
// product.
template <int Strips, int Tiles>
class Results {
 public:
  __device__ __forceinline__ void store(const ProductArgs& args, const FinishedGroup& group,
                                        const float* parts, const float* token_scales) {
    const int part = Strips * kStripColumns * args.tokens;
    const int count = group.strips.count * kStripColumns * args.tokens;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int e = static_cast<int>(threadIdx.x) + k * kProductThreads;
      if (e >= count) break;
      const float sum = add_parts(parts, part, e);
      const int row = e / kStripColumns;
      const int strip = args.tokens == 1 ? row : row / args.tokens;
      const int token = row - strip * args.tokens;
      store_result(
          {group.matrix, token, (group.strips.first + strip) * kStripColumns + e % kStripColumns},
          args, gate_[k], sum * token_scales[token] * args.multiplier);
    }
  }

 private:
  static constexpr int kEach =
      (Strips * kStripColumns * Tiles * kTokenTile + kProductThreads - 1) / kProductThreads;

  float gate_[kEach];
};

template <int Strips, int Tiles, class Scales, WidthSet kWidths>
__device__ __forceinline__ void multiply_share(const Launch& launch, std::byte* shared,
                                               PieceRing<true>& ring) {
  const ProductArgs& args = launch.args;
  auto& own = *reinterpret_cast<Shared*>(shared);
  const int part = Strips * kStripColumns * args.tokens;
  auto* parts = reinterpret_cast<float*>(shared + sizeof(Shared));
  dependency_wait();
  if (static_cast<int>(threadIdx.x) < args.tokens) {
    own.token_scales[threadIdx.x] = args.token_scales[args.first_token + threadIdx.x];
  }
  SummedInputReader<Tiles> input;
  Results<Strips, Tiles> results;
  Sums<Strips, Tiles> totals;
  totals.clear();
  PieceView piece;
  int next = warp_index();
  int half = 0;
  bool again = false;
  do {
    ring.next(args, nullptr, piece);
    const CodeMatrixView& m = args.matrices[piece.matrix].view;
    input.open(piece.fragments, piece.unit_stride, kFragmentBytes, args.tokens);
    input.open_sums(args.matrices[piece.matrix].chunk_sums + args.first_token * m.units,
                    sum_columns(args.tokens));
    multiply_piece<Strips, Tiles, Scales, kWidths>(m, piece, input, next, totals);
    if ((piece.flags & kEndsStrips) == 0) {
      ring.release();
      continue;
    }
    const FinishedGroup finished{piece.matrix, ring.strips()};
    ring.release();
    if (kHalves<Tiles> == 1 && again) product_sync();  // the sums before have been read
    if (threadIdx.x == 0) own.finished[half] = finished;
    again = true;
    float* here = parts + half * kProductWarps * part;
    keep_sums(totals, args.tokens, here + warp_index() * part);
    totals.clear();
    product_sync();
    results.store(args, own.finished[half], here, own.token_scales);
    // Then the other half: who writes here again has passed the next barrier, behind these reads.
    if (kHalves<Tiles> == 2) half ^= 1;
  } while ((piece.flags & kEndsShare) == 0);
}

template <int Strips, int Tiles, bool kGptq, WidthSet kWidths>
__global__ void __launch_bounds__(kThreads, 1)
    product_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(128) std::byte shared[];
  allow_next();
  const int begin = launch.begins[blockIdx.x];
  const int end = launch.begins[blockIdx.x + 1];
  const PieceWalk walk(launch.args, begin, end, Strips);
  using Scales = std::conditional_t<kGptq, GptqScales, ExlScales>;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  auto& own = *reinterpret_cast<Shared*>(shared);
  PieceRing<true> ring(launch.ring, shared + launch.ring_at, own.barriers);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  if (threadIdx.x >= kProductThreads) {
    ring.produce(launch.args, walk);
    return;
  }
#else
  PieceRing<true> ring(launch.ring, walk);
  if (threadIdx.x >= kProductThreads) return;
#endif
  multiply_share<Strips, Tiles, Scales, kWidths>(launch, shared, ring);
}

// Lays out shared memory; returns its bytes.
int lay_out(const DeviceFacts& facts, int strips, int halves, Launch& launch) {
  const ProductArgs& args = launch.args;
  RingShape& ring = launch.ring;
  ring.tokens = args.tokens;
  for (int i = 0; i < args.count; ++i) {
    ring.make_room(args.matrices[i].piece_bytes, args.matrices[i].piece_scale_bytes);
  }
  const int part = strips * kStripColumns * args.tokens * static_cast<int>(sizeof(float));
  launch.ring_at =
      RingShape::rounded(static_cast<int>(sizeof(Shared)) + halves * kProductWarps * part);
  if (!facts.dependent_launch()) return launch.ring_at;  // no bulk copies either
  const auto whole = static_cast<int>(facts.shared_bytes_per_cta);
  ring.fill(whole - launch.ring_at, strips);
  return whole;
}

using ProductKernel = void (*)(Launch);

template <int Strips, int Tiles, bool kGptq>
ProductKernel kernel_of(WidthSet widths) {
  return with_width_set<kGptq>(widths, [&]<WidthSet kWidths>() -> ProductKernel {
    return product_kernel<Strips, Tiles, kGptq, kWidths>;
  });
}

template <int Strips, int Tiles>
void start(ExecContext& ctx, Launch& launch_args, int ctas) {
  const int bytes = lay_out(cuda_ops_of(ctx).backend->facts(), Strips, kHalves<Tiles>, launch_args);
  const bool gptq = launch_args.args.matrices[0].view.kind != ScaleKind::kExl2;
  const WidthSet widths = widths_of(launch_args.args);
  const ProductKernel kernel =
      gptq ? kernel_of<Strips, Tiles, true>(widths) : kernel_of<Strips, Tiles, false>(widths);
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  launch(
      shape_of(ctx, dim3(static_cast<unsigned>(ctas)), kThreads, static_cast<std::size_t>(bytes)),
      kernel, launch_args);
}

// Strips that a CTA has, of one matrix of gated ones.
int share_of(const ProductArgs& args, int ctas) {
  int strips = 0;
  for (int i = 0; i < (args.gated ? 1 : args.count); ++i) strips += args.matrices[i].view.strips;
  return (strips + ctas - 1) / ctas;
}

}  // namespace

bool has_no_zeros(const ProductArgs& args) {
  return std::all_of(args.matrices, args.matrices + args.count,
                     [](const ProductMatrix& m) { return m.view.kind == ScaleKind::kGptq; });
}

WidthSet widths_of(const ProductArgs& args) {
  WidthSet widths = 0;
  for (int i = 0; i < args.count; ++i) widths |= args.matrices[i].widths;
  return widths;
}

void check_product(const ProductArgs& args) {
  const auto is_exl2 = [](const ProductMatrix& m) { return m.view.kind == ScaleKind::kExl2; };
  for (int i = 1; i < args.count; ++i) {
    BL_CHECK(is_exl2(args.matrices[i]) == is_exl2(args.matrices[0]));
  }
  BL_CHECK(!args.gated ||
           (args.count == 2 && args.matrices[0].view.strips == args.matrices[1].view.strips));
}

int most_product_tokens(const DeviceFacts& facts) {
  // What sixteen need in any format: sums of 3 strips, and an entry of the ring.
  constexpr std::size_t kWanted = 180 << 10;
  return facts.shared_bytes_per_cta >= kWanted ? kMaxProductTokens : kTokenTile;
}

void product(ExecContext& ctx, const ProductArgs& args, const StripShares& shares) {
  BL_CHECK(args.tokens > 0 && args.tokens <= kMaxProductTokens);
  check_product(args);
  Launch launch_args;
  launch_args.args = args;
  launch_args.begins = shares.begins;
  const bool has_others =
      most_product_tokens(cuda_ops_of(ctx).backend->facts()) > kTokenTile;  // than of one tile
  if (args.tokens <= kTokenTile && !(args.regardless_of_batch && has_others)) {
    start<2, 1>(ctx, launch_args, shares.ctas);
  } else if (share_of(args, shares.ctas) <= 2) {
    start<2, 2>(ctx, launch_args, shares.ctas);
  } else {
    start<3, 2>(ctx, launch_args, shares.ctas);
  }
}

}  // namespace bl::cuda
