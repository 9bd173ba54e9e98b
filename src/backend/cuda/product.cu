#include <algorithm>

#include "backend/cuda/bulk_copy.cuh"
#include "backend/cuda/code_product.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/product.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kWarps = kProductWarps;
constexpr int kThreads = kWarps * 32;
constexpr int kSlotBytes = kMaxChunkBytes + 256;  // a chunk and its scales

struct Launch {
  ProductArgs args;
  int strips_before[kMaxMatrices];
  const CtaShare* shares = nullptr;  // [ctas]
  float* partials = nullptr;         // [ctas][2][64][tokens]
  std::int32_t* counters = nullptr;  // one a strip
  int ring_slots = 0;                // of a warp
  int parts_offset = 0;              // in shared memory, behind the rings
};

__device__ __forceinline__ bool same(const ChunkCursor& a, const ChunkCursor& b) {
  return a.strip == b.strip && a.chunk == b.chunk;
}

__device__ __forceinline__ void advance(const Launch& launch, ChunkCursor& cursor) {
  const CodeMatrixView& m = launch.args.matrices[cursor.matrix].view;
  if (++cursor.chunk < m.chunk_count) return;
  cursor.chunk = 0;
  ++cursor.strip;
  if (cursor.strip == launch.strips_before[cursor.matrix] + m.strips) ++cursor.matrix;
}

// 32 entries of a chunk table in the lanes of a warp, so that following a stream costs no loads.
class ChunkWindow {
 public:
  __device__ __forceinline__ Chunk get(const Launch& launch, const ChunkCursor& cursor, int lane) {
    const int base = cursor.chunk & ~31;
    if (base != base_ || cursor.matrix != matrix_) {
      const CodeMatrixView& m = launch.args.matrices[cursor.matrix].view;
      const int at = min(base + lane, m.chunk_count - 1);
      mine_ = __ldg(reinterpret_cast<const uint4*>(m.chunks + at));
      base_ = base;
      matrix_ = cursor.matrix;
    }
    const int from = cursor.chunk & 31;
    uint4 bits;
    bits.x = __shfl_sync(0xffffffffu, mine_.x, from);
    bits.y = __shfl_sync(0xffffffffu, mine_.y, from);
    bits.z = __shfl_sync(0xffffffffu, mine_.z, from);
    bits.w = __shfl_sync(0xffffffffu, mine_.w, from);
    Chunk chunk;
    *reinterpret_cast<uint4*>(&chunk) = bits;
    return chunk;
  }

 private:
  uint4 mine_{};
  int base_ = -1;
  int matrix_ = -1;
};

__device__ __forceinline__ const std::byte* codes_of(const CodeMatrixView& m, int strip,
                                                     const Chunk& chunk) {
  return m.codes + strip * m.strip_bytes + static_cast<std::int64_t>(chunk.offset) * 256;
}

__device__ __forceinline__ const std::byte* scales_of(const CodeMatrixView& m, int strip,
                                                      const Chunk& chunk) {
  return m.scales +
         (static_cast<std::int64_t>(strip) * m.groups + chunk.group) * scale_bytes(m.kind);
}

// A warp's chunks on their way from memory: a ring in shared memory that bulk copies fill (compute
// capability 9 and later), or straight reads.
class ChunkStream {
 public:
  BL_HD static constexpr int barrier_bytes(int slots) {
    return (kWarps * slots * 8 + 127) / 128 * 128;
  }
  BL_HD static constexpr int ring_bytes(int slots) {
    return barrier_bytes(slots) + kWarps * slots * kSlotBytes;
  }

  // Starts the copies of as many chunks as the ring holds.
  __device__ ChunkStream(const Launch& launch, std::byte* shared, const ChunkCursor& begin,
                         const ChunkCursor& end)
      : launch_(launch), lane_(static_cast<int>(threadIdx.x) % 32), next_(begin), end_(end) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const int warp = static_cast<int>(threadIdx.x) / 32;
    slots_ = launch.ring_slots;
    barriers_ = reinterpret_cast<std::uint64_t*>(shared) + warp * slots_;
    ring_ = shared + barrier_bytes(slots_) + warp * slots_ * kSlotBytes;
    if (lane_ == 0) {
      for (int i = 0; i < slots_; ++i) barrier_init(barriers_ + i, 1);
      barrier_init_fence();
    }
    __syncwarp();
    for (int i = 0; i < slots_ && !same(next_, end_); ++i) issue(i);
#endif
  }

  // Codes and scales of the next chunk.
  __device__ __forceinline__ void wait(const CodeMatrixView& m, int strip, const Chunk& chunk,
                                       const std::byte*& codes, const std::byte*& scales) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    barrier_wait(barriers_ + slot_, phase_);
    codes = ring_ + slot_ * kSlotBytes;
    scales = codes + kMaxChunkBytes;
#else
    codes = codes_of(m, strip, chunk);
    scales = scales_of(m, strip, chunk);
#endif
  }

  // The chunk has been used: its slot takes another one.
  __device__ __forceinline__ void release() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __syncwarp();
    if (!same(next_, end_)) issue(slot_);
    if (++slot_ == slots_) {
      slot_ = 0;
      phase_ ^= 1u;
    }
#endif
  }

 private:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ __forceinline__ void issue(int slot) {
    const CodeMatrixView& m = launch_.args.matrices[next_.matrix].view;
    const Chunk chunk = window_.get(launch_, next_, lane_);
    if (lane_ == 0) {
      const int strip = next_.strip - launch_.strips_before[next_.matrix];
      std::byte* to = ring_ + slot * kSlotBytes;
      const int bytes = chunk.units * unit_bytes(chunk.bits);
      barrier_expect(barriers_ + slot, bytes + scale_bytes(m.kind));
      bulk_copy(to, codes_of(m, strip, chunk), bytes, barriers_ + slot);
      bulk_copy(to + kMaxChunkBytes, scales_of(m, strip, chunk), scale_bytes(m.kind),
                barriers_ + slot);
    }
    advance(launch_, next_);
  }
  std::uint64_t* barriers_ = nullptr;
  std::byte* ring_ = nullptr;
  int slots_ = 0;
  int slot_ = 0;
  std::uint32_t phase_ = 0;
  ChunkWindow window_;
#endif
  const Launch& launch_;
  int lane_;
  ChunkCursor next_;
  ChunkCursor end_;
};

__device__ __forceinline__ int matrix_of(const Launch& launch, int strip) {
  int m = 0;
  while (m + 1 < launch.args.count && launch.strips_before[m + 1] <= strip) ++m;
  return m;
}

// One result of column `column` (0 … 63) of a strip.
__device__ __forceinline__ void store(const Launch& launch, int strip, int column, int token,
                                      float sum) {
  const int matrix = matrix_of(launch, strip);
  const ProductArgs& args = launch.args;
  const ProductMatrix& m = args.matrices[matrix];
  const int at = (strip - launch.strips_before[matrix]) * kStripColumns + column;
  if (at >= m.view.out) return;
  float value = sum * args.token_scales[args.first_token + token] * args.multiplier;
  if (m.bias != nullptr) value += m.bias[at];
  float* to = m.out + (args.first_token + token) * m.out_stride + at;
  *to = args.accumulate ? *to + value : value;
}

// What a warp made of a strip lies in one of two slots: 1 where its share ends before the strip
// does, 0 where it ended the strip without having begun it. A strip that lies in one share needs
// none.
__device__ __forceinline__ bool made_whole(const ChunkCursor& begin, const ChunkCursor& end,
                                           int strip) {
  return (begin.strip < strip || (begin.strip == strip && begin.chunk == 0)) && end.strip > strip;
}
__device__ __forceinline__ bool made_part(const ChunkCursor& begin, const ChunkCursor& end,
                                          int strip) {
  return begin.strip <= strip && !same(begin, end) &&
         (end.strip > strip || (end.strip == strip && end.chunk > 0));
}

template <int Tiles>
__device__ __forceinline__ void keep_sums(const Launch& launch, const Sums<Tiles>& totals,
                                          int strip, bool whole, float* part) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int tokens = launch.args.tokens;
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int token = n * kTokenTile + 2 * (lane % 4) + c % 2;
      if (token >= tokens) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 16 * i + 8 * (c / 2) + lane / 4;
        if (whole) {
          store(launch, strip, column, token, totals.at[n][i][c]);
        } else {
          part[token * kStripColumns + column] = totals.at[n][i][c];
        }
      }
    }
}

// A strip that another CTA has a part of too: the last one to arrive adds all parts in order of the
// CTAs. `end`: 0 for the share's first strip, 1 for its last.
__device__ __forceinline__ bool arrives_last(const Launch& launch, const CtaShare& share, int end,
                                             int strip) {
  std::int32_t* counter = launch.counters + strip;
  const bool last = atomicAdd(counter, 1) == share.last_owner[end] - share.first_owner[end];
  if (last) *counter = 0;
  return last;
}

// Sums of the warps' parts, strip by strip.
__device__ void add_parts(const Launch& launch, const CtaShare& share, const float* parts,
                          bool* arrived_last) {
  const int cta = static_cast<int>(blockIdx.x);
  const int count = kStripColumns * launch.args.tokens;
  const ChunkCursor& begin = share.begin[0];
  const ChunkCursor& end = share.begin[kWarps];
  const int first = begin.strip;
  const int strips = end.strip + (end.chunk > 0 ? 1 : 0) - first;
  const bool shared_first = begin.chunk > 0;
  const bool shared_last = end.chunk > 0;
  for (int e = static_cast<int>(threadIdx.x); e < strips * count; e += kThreads) {
    const int strip = first + e / count;
    const int at = e % count;
    float sum = 0.0f;
    bool done = false;
    for (int w = 0; w < kWarps; ++w) {
      const ChunkCursor& b = share.begin[w];
      const ChunkCursor& n = share.begin[w + 1];
      if (made_whole(b, n, strip)) done = true;
      if (!made_part(b, n, strip)) continue;
      sum += parts[(w * 2 + (n.strip > strip ? 0 : 1)) * count + at];
    }
    if (done) continue;
    const bool cut = shared_last && strip == end.strip;
    if (cut || (shared_first && strip == first)) {
      launch.partials[(cta * 2 + (cut ? 1 : 0)) * count + at] = sum;
    } else {
      store(launch, strip, at % kStripColumns, at / kStripColumns, sum);
    }
  }
  if (!shared_first && !shared_last) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x < 2) {
    const bool is_first = threadIdx.x == 0;
    const bool mine = is_first ? shared_first && !(shared_last && end.strip == first) : shared_last;
    arrived_last[threadIdx.x] = mine && arrives_last(launch, share, static_cast<int>(threadIdx.x),
                                                     is_first ? first : end.strip);
    __threadfence();
  }
  __syncthreads();
  for (int which = 0; which < 2; ++which) {
    if (!arrived_last[which]) continue;
    const int strip = which == 0 ? first : end.strip;
    for (int e = static_cast<int>(threadIdx.x); e < count; e += kThreads) {
      float sum = 0.0f;
      for (int c = share.first_owner[which]; c <= share.last_owner[which]; ++c) {
        sum +=
            __ldcg(launch.partials + (c * 2 + (c == share.last_owner[which] ? 0 : 1)) * count + e);
      }
      store(launch, strip, e % kStripColumns, e / kStripColumns, sum);
    }
  }
}

template <int Tiles>
__global__ void __launch_bounds__(kThreads, Tiles == 1 ? 2 : 1)
    product_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ __align__(16) CtaShare share;
  __shared__ bool arrived_last[2];
  allow_next();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const ProductArgs& args = launch.args;
  if (threadIdx.x < sizeof(CtaShare) / 4) {
    reinterpret_cast<std::uint32_t*>(&share)[threadIdx.x] =
        reinterpret_cast<const std::uint32_t*>(launch.shares + blockIdx.x)[threadIdx.x];
  }
  __syncthreads();
  const ChunkCursor begin = share.begin[warp];
  const ChunkCursor end = share.begin[warp + 1];
  ChunkCursor cursor = begin;
  ChunkWindow window;
  Chunk chunk;
  if (!same(cursor, end)) chunk = window.get(launch, cursor, lane);
  ChunkStream stream(launch, shared, begin, end);
  float* parts = reinterpret_cast<float*>(shared + launch.parts_offset);
  const int first_tile = args.first_token / kTokenTile;
  dependency_wait();

  Sums<Tiles> totals;
  totals.clear();
  while (!same(cursor, end)) {
    const ProductMatrix& m = args.matrices[cursor.matrix];
    LaneInput<Tiles> input;
    input.open({reinterpret_cast<const uint4*>(m.fragments), m.view.units}, first_tile,
               args.first_token + args.tokens, lane);
    ChunkInput<Tiles> x;
    input.load(chunk, x);
    const std::byte* codes = nullptr;
    const std::byte* scales = nullptr;
    stream.wait(m.view, cursor.strip - launch.strips_before[cursor.matrix], chunk, codes, scales);
    ChunkSums<Tiles> sums;
    multiply_chunk(codes, chunk, x, sums);
    LaneScales lane_scales;
    lane_scales.load(m.view, scales, chunk.group_scale, chunk.bits, lane);
    stream.release();
    apply_scales(lane_scales, sums, totals);
    const int strip = cursor.strip;
    advance(launch, cursor);
    const bool last = same(cursor, end);
    if (last || cursor.strip != strip) {
      const int slot = warp * 2 + (cursor.strip != strip ? 0 : 1);
      keep_sums(launch, totals, strip, made_whole(begin, end, strip),
                parts + slot * kStripColumns * args.tokens);
      totals.clear();
    }
    if (!last) chunk = window.get(launch, cursor, lane);
  }
  __syncthreads();
  add_parts(launch, share, parts, arrived_last);
}

template <int Tiles>
void start(ExecContext& ctx, const Launch& launch_args, int ctas, std::size_t shared_bytes) {
  BL_CUDA_CHECK(cudaFuncSetAttribute(product_kernel<Tiles>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes)));
  launch(shape_of(ctx, dim3(static_cast<unsigned>(ctas)), kThreads, shared_bytes),
         product_kernel<Tiles>, launch_args);
}

}  // namespace

std::size_t product_scratch_bytes(int multiprocessors) {
  return arena_bytes(DType::kF32,
                     std::int64_t{multiprocessors} * 2 * kStripColumns * kMaxProductTokens);
}

void product(ExecContext& ctx, const ProductArgs& args, const ProductPlans::Entry& plan,
             std::int32_t* counters) {
  BL_CHECK(args.tokens > 0 && args.tokens <= kMaxProductTokens);
  BL_CHECK(args.first_token % kTokenTile == 0);
  Launch launch_args;
  launch_args.args = args;
  launch_args.shares = plan.shares;
  launch_args.counters = counters;
  int strips = 0;
  for (int i = 0; i < args.count; ++i) {
    launch_args.strips_before[i] = strips;
    strips += args.matrices[i].view.strips;
  }
  BL_CHECK(strips <= kMaxStrips);
  ArenaScope scope(*ctx.scratch);
  const std::int64_t part = std::int64_t{kStripColumns} * args.tokens;
  launch_args.partials = ctx.scratch->take_f32({plan.ctas * 2 * part}).as<float>();
  launch_args.ring_slots = args.tokens <= 2 ? 3 : 2;
  const int ring =
      cuda_ops_of(ctx).dependent_launch ? ChunkStream::ring_bytes(launch_args.ring_slots) : 0;
  launch_args.parts_offset = ring;
  const std::size_t shared =
      static_cast<std::size_t>(ring) + static_cast<std::size_t>(kWarps * 2 * part) * sizeof(float);
  if (args.tokens <= kTokenTile) {
    start<1>(ctx, launch_args, plan.ctas, shared);
  } else {
    start<2>(ctx, launch_args, plan.ctas, shared);
  }
}

}  // namespace bl::cuda
