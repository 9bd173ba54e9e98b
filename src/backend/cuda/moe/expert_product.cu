// Rows sorted by expert times packed codes. A CTA multiplies rows of one block by one group of
// strips; its warps take the strips' chunks in turn and are added up in a fixed order, so that a
// row's result depends neither on the other rows nor on the size of the block.

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/moe/expert_kernels.h"
#include "backend/cuda/gemm/skinny/copy_block_mma.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"

namespace bl::cuda {
namespace {

constexpr int kBarrierBytes = 128;
static_assert(2 * kMaxRingSlots * sizeof(std::uint64_t) <= kBarrierBytes);

// Strips of a group: as many as registers hold sums of, with the warps that a CTA has.
constexpr int kGroupStrips = 3;

// Blocks of few rows wait for weights, which a ring brings. Blocks of many find them in the L2
// cache.
template <int Tiles>
constexpr bool kWithRing = Tiles == 1;
template <int Tiles>
constexpr int kMaxThreads = kProductThreads + (kWithRing<Tiles> ? 32 : 0);

BL_HD constexpr int strips_of(int out) { return (out + kStripColumns - 1) / kStripColumns; }

// The group of strips that a CTA multiplies.
struct StripGroup {
  int matrix;
  int first;
  int end;
};
__device__ __forceinline__ StripGroup strip_group(const ExpertProductArgs& p) {
  const int group = static_cast<int>(blockIdx.y);
  const int of_first = (strips_of(p.matrices[0].out) + kGroupStrips - 1) / kGroupStrips;
  const int matrix = group < of_first ? 0 : 1;
  const int first = (matrix == 0 ? group : group - of_first) * kGroupStrips;
  return {matrix, first, min(first + kGroupStrips, strips_of(p.matrices[matrix].out))};
}

// A word a thread.
template <class T>
__device__ __forceinline__ void copy_words(T& to, const T& from) {
  static_assert(sizeof(T) % sizeof(uint2) == 0 && sizeof(T) / sizeof(uint2) <= kProductThreads);
  static_assert(alignof(T) >= alignof(uint2));
  if (threadIdx.x < sizeof(T) / sizeof(uint2)) {
    reinterpret_cast<uint2*>(&to)[threadIdx.x] = reinterpret_cast<const uint2*>(&from)[threadIdx.x];
  }
}

// Experts may be of different formats.
struct AnyScales {
  ExlScales exl2;
  GptqScales gptq;
  __device__ static constexpr int bytes(ScaleKind kind) { return scale_bytes(kind); }
  __device__ __forceinline__ AnyScales(const CodeMatrixView& m, const Chunk& chunk, int lane,
                                       float factor)
      : exl2(m, chunk, lane, factor), gptq(m, chunk, lane, factor) {}
  __device__ __forceinline__ LaneScales of(const std::byte* scales, int lane) const {
    return gptq.kind == ScaleKind::kExl2 ? exl2.of(scales, lane) : gptq.of(scales, lane);
  }
};

// The whole group as one piece, where it lies.
__device__ __forceinline__ PieceView whole_group(const CodeMatrixView& m, const StripGroup& group) {
  PieceView view;
  view.strips = group.end - group.first;
  view.chunks = m.chunk_count;
  view.chunk_words = reinterpret_cast<const uint4*>(m.chunks);
  view.scale_stride = static_cast<int>(scale_stride(m.kind, m.groups));
  view.scales = m.scales + group.first * std::int64_t{view.scale_stride};
  view.code_stride = static_cast<int>(m.strip_bytes);
  view.codes = m.codes + group.first * m.strip_bytes;
  return view;
}

// What a CTA works on, in shared memory, so that it takes no registers from the products.
struct Work {
  ProductArgs args;  // as far as the ring reads them
  const float* bias;
  StripGroup group;
  int live;  // rows
};

// The first of the rows that a CTA multiplies.
template <int Tiles>
__device__ __forceinline__ int first_row_of(const ExpertProductArgs& p) {
  return static_cast<int>(blockIdx.x) * p.rows.block_rows +
         static_cast<int>(blockIdx.z) * Tiles * kTokenTile;
}

// By all threads; false where there is nothing to do.
template <int Tiles>
__device__ __forceinline__ bool find_work(const ExpertProductArgs& p, Work& work) {
  const int expert = __ldcg(p.rows.expert_of_block + blockIdx.x);
  if (expert < 0) return false;
  const int before = static_cast<int>(blockIdx.z) * Tiles * kTokenTile;
  const int live = min(__ldcg(p.rows.rows_of_block + blockIdx.x) - before, Tiles * kTokenTile);
  if (live <= 0) return false;
  const StripGroup group = strip_group(p);
  const ExpertMatrix& matrix = p.matrices[group.matrix].table[expert];
  copy_words(work.args.matrices[0].view, matrix.view);
  if (threadIdx.x == 0) {
    work.args.gated = false;
    work.bias = matrix.bias;
    work.group = group;
    work.live = live;
  }
  __syncthreads();
  return work.args.matrices[0].view.codes != nullptr;
}

// The results of the block's rows in the group's columns.
__device__ __forceinline__ void store_rows(const ExpertProductArgs& p, const Work& work, int part,
                                           int first_row, const float* parts) {
  const ExpertProductArgs::Matrix& to = p.matrices[work.group.matrix];
  const int count = (work.group.end - work.group.first) * kStripColumns * work.live;
  for (int e = static_cast<int>(threadIdx.x); e < count; e += kProductThreads) {
    const int strip = e / kStripColumns / work.live;
    const int row = first_row + e / kStripColumns % work.live;
    const int column = (work.group.first + strip) * kStripColumns + e % kStripColumns;
    if (column >= to.out) continue;
    float value = add_parts(parts, part, e) * p.row_scales[row];
    if (work.bias != nullptr) value += work.bias[column];
    p.out[row * p.out_stride + to.first_column + column] = value;
  }
}

// grid (blocks, groups of strips of the first matrix and the second, parts of a block). It reads
// the sorted choices before it waits for the kernel before it, which by then has waited for theirs
// (expert_prepare.cu).
template <int Tiles>
__global__ void __launch_bounds__(kMaxThreads<Tiles>, 1)
    expert_code_kernel(const __grid_constant__ ExpertProductArgs p,
                       const __grid_constant__ RingShape shape) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ __align__(16) std::byte work_bytes[sizeof(Work)];
  auto& work = *reinterpret_cast<Work*>(work_bytes);
  allow_next();
  if (!find_work<Tiles>(p, work)) {
    dependency_wait();
    return;
  }
  const CodeMatrixView& m = work.args.matrices[0].view;
  const int first_row = first_row_of<Tiles>(p);
  const int token_bytes = p.units * kFragmentBytes;
  const auto* fragments =
      reinterpret_cast<const std::byte*>(p.matrices[work.group.matrix].fragments);
  InputReader<Tiles> input;
  input.open(fragments + std::int64_t{first_row} * token_bytes, kFragmentBytes, token_bytes,
             work.live);
  Sums<kGroupStrips, Tiles> totals;
  totals.clear();
  int next = warp_index();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kWithRing<Tiles>) {
    PieceRing<false> ring(shape, shared + kBarrierBytes, reinterpret_cast<std::uint64_t*>(shared));
    if (threadIdx.x == 0) ring.init();
    __syncthreads();
    if (threadIdx.x >= kProductThreads) {
      ring.produce(work.args, PieceWalk(work.args, work.group.first, work.group.end, kGroupStrips));
      return;
    }
    dependency_wait();
    PieceView piece;
    do {
      ring.next(work.args, nullptr, piece);
      multiply_piece<kGroupStrips, Tiles, AnyScales, kAllWidths>(m, piece, input, next, totals);
      ring.release();
    } while ((piece.flags & kEndsShare) == 0);
  } else
#endif
  {
    if (threadIdx.x >= kProductThreads) return;
    dependency_wait();
    multiply_piece<kGroupStrips, Tiles, AnyScales, kAllWidths>(m, whole_group(m, work.group), input,
                                                               next, totals);
  }
  product_sync();  // nothing of the ring is read any more
  auto* parts = reinterpret_cast<float*>(shared + kBarrierBytes);
  const int part = kGroupStrips * kStripColumns * work.live;
  keep_sums(totals, work.live, parts + warp_index() * part);
  product_sync();
  store_rows(p, work, part, first_row, parts);
}

// Shared memory: barriers, then the ring, where the warps' sums lie afterwards.
struct Layout {
  RingShape shape;
  int bytes = 0;
};

template <int Tiles>
Layout lay_out(const DeviceFacts& facts, const ExpertProductArgs& args) {
  Layout layout;
  RingShape& shape = layout.shape;
  constexpr int kSumBytes = kProductWarps * kGroupStrips * kStripColumns * Tiles * kTokenTile *
                            static_cast<int>(sizeof(float));
  layout.bytes = kBarrierBytes + kSumBytes;
  if constexpr (kWithRing<Tiles>) {
    if (!facts.dependent_launch()) return layout;  // nor bulk copies
    for (int i = 0; i < args.count; ++i) {
      shape.make_room(args.matrices[i].piece_bytes, args.matrices[i].piece_scale_bytes);
    }
    constexpr int kReserved = 2048;  // a CTA's own and the system's
    layout.bytes = static_cast<int>(facts.shared_bytes_per_cta) - kReserved;
    shape.fill(layout.bytes - kBarrierBytes, kGroupStrips);
  }
  return layout;
}

template <int Tiles>
void start(ExecContext& ctx, const ExpertProductArgs& args) {
  const Layout layout = lay_out<Tiles>(cuda_ops_of(ctx).backend->facts(), args);
  BL_CUDA_CHECK(cudaFuncSetAttribute(expert_code_kernel<Tiles>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, layout.bytes));
  int groups = 0;
  for (int i = 0; i < args.count; ++i) {
    groups += (strips_of(args.matrices[i].out) + kGroupStrips - 1) / kGroupStrips;
  }
  const dim3 grid(static_cast<unsigned>(args.rows.blocks), static_cast<unsigned>(groups),
                  static_cast<unsigned>(args.rows.block_rows / (Tiles * kTokenTile)));
  const int threads = kProductThreads + (layout.shape.bytes > 0 ? 32 : 0);
  launch(shape_of(ctx, grid, dim3(static_cast<unsigned>(threads)),
                  static_cast<std::size_t>(layout.bytes)),
         expert_code_kernel<Tiles>, args, layout.shape);
}

}  // namespace

void expert_code_product(ExecContext& ctx, const ExpertProductArgs& args) {
  if (args.rows.block_rows == kSmallBlock) {
    start<1>(ctx, args);
  } else {
    start<2>(ctx, args);
  }
}

}  // namespace bl::cuda
