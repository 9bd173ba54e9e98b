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
constexpr int kScaleRoom = 256;
constexpr int kSlotBytes = kMaxChunkBytes + kScaleRoom + 32;  // a chunk, its scales, its Arrival

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

// A chunk on its way, with its place.
struct alignas(16) Arrival {
  Chunk chunk;
  std::int32_t strip = 0;  // counted over all matrices
  std::int16_t matrix = 0;
  bool last = false;  // of the warp's share
};

// Follows the chunks of a share. Codes of a matrix lie one after the other in this order, strips
// included, and so do its scales, so that addresses only ever grow.
class ChunkWalk {
 public:
  __device__ ChunkWalk(const Launch& launch, const ChunkCursor& begin, const ChunkCursor& end)
      : launch_(launch), next_(begin), end_(end) {
    if (!done()) open_matrix();
  }
  __device__ __forceinline__ bool done() const { return same(next_, end_); }
  __device__ __forceinline__ int scale_count() const { return scale_bytes_; }  // of the next chunk

  // The next chunk and where it lies.
  __device__ __forceinline__ Arrival take(const std::byte*& codes, const std::byte*& scales) {
    Arrival arrival;
    *reinterpret_cast<uint4*>(&arrival.chunk) = upcoming_;
    const Chunk& chunk = arrival.chunk;
    arrival.strip = next_.strip;
    arrival.matrix = next_.matrix;
    codes = codes_;
    scales = scales_;
    codes_ += chunk.units * unit_bytes(chunk.bits);
    if (chunk.ends_group != 0) scales_ += scale_bytes_;
    ++next_.chunk;
    if (chunk.ends_strip != 0) {
      next_.chunk = 0;
      ++next_.strip;
    }
    arrival.last = done();
    if (!arrival.last) {
      if (next_.strip == strips_end_) {
        ++next_.matrix;
        open_matrix();
      } else {
        look_ahead();
      }
    }
    return arrival;
  }

 private:
  __device__ __forceinline__ void look_ahead() {
    upcoming_ = __ldg(reinterpret_cast<const uint4*>(chunks_ + next_.chunk));
  }
  __device__ __forceinline__ void open_matrix() {
    const CodeMatrixView& m = launch_.args.matrices[next_.matrix].view;
    const int before = launch_.strips_before[next_.matrix];
    const int strip = next_.strip - before;
    strips_end_ = before + m.strips;
    chunks_ = m.chunks;
    scale_bytes_ = scale_bytes(m.kind);
    look_ahead();
    Chunk chunk;
    *reinterpret_cast<uint4*>(&chunk) = upcoming_;
    codes_ = m.codes + strip * m.strip_bytes + static_cast<std::int64_t>(chunk.offset) * 256;
    scales_ = m.scales + (static_cast<std::int64_t>(strip) * m.groups + chunk.group) * scale_bytes_;
  }

  const Launch& launch_;
  ChunkCursor next_;
  ChunkCursor end_;
  uint4 upcoming_{};
  const Chunk* chunks_ = nullptr;
  const std::byte* codes_ = nullptr;
  const std::byte* scales_ = nullptr;
  int strips_end_ = 0;
  int scale_bytes_ = 0;
};

// A warp's chunks: through a ring in shared memory that bulk copies fill (compute capability 9 and
// later), or by straight reads.
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
      : walk_(launch, begin, end) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const int warp = static_cast<int>(threadIdx.x) / 32;
    slots_ = launch.ring_slots;
    barriers_ = reinterpret_cast<std::uint64_t*>(shared) + warp * slots_;
    ring_ = shared + barrier_bytes(slots_) + warp * slots_ * kSlotBytes;
    if (first_lane()) {
      for (int i = 0; i < slots_; ++i) barrier_init(barriers_ + i, 1);
      barrier_init_fence();
    }
    __syncwarp();
    for (int i = 0; i < slots_ && !walk_.done(); ++i) issue(i);
    __syncwarp();
#endif
  }

  // What comes next. Its codes and scales are there after wait().
  __device__ __forceinline__ Arrival next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    return *reinterpret_cast<const Arrival*>(slot_at(slot_) + kMaxChunkBytes + kScaleRoom);
#else
    return walk_.take(codes_, scales_);
#endif
  }
  __device__ __forceinline__ const std::byte* wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    barrier_wait(barriers_ + slot_, phase_);
    return slot_at(slot_);
#else
    return codes_;
#endif
  }
  __device__ __forceinline__ const std::byte* scales() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    return slot_at(slot_) + kMaxChunkBytes;
#else
    return scales_;
#endif
  }

  // The chunk has been used: its slot takes another one.
  __device__ __forceinline__ void release() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __syncwarp();
    if (!walk_.done()) issue(slot_);
    __syncwarp();
    if (++slot_ == slots_) {
      slot_ = 0;
      phase_ ^= 1u;
    }
#endif
  }

 private:
  ChunkWalk walk_;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ __forceinline__ static bool first_lane() { return threadIdx.x % 32 == 0; }
  __device__ __forceinline__ std::byte* slot_at(int slot) const {
    return ring_ + slot * kSlotBytes;
  }
  __device__ __forceinline__ void issue(int slot) {
    const std::byte* codes;
    const std::byte* scales;
    const int scale_count = walk_.scale_count();
    const Arrival arrival = walk_.take(codes, scales);
    if (first_lane()) {
      std::byte* to = slot_at(slot);
      *reinterpret_cast<Arrival*>(to + kMaxChunkBytes + kScaleRoom) = arrival;
      const int bytes = arrival.chunk.units * unit_bytes(arrival.chunk.bits);
      barrier_expect(barriers_ + slot, bytes + scale_count);
      bulk_copy(to, codes, bytes, barriers_ + slot);
      bulk_copy(to + kMaxChunkBytes, scales, scale_count, barriers_ + slot);
    }
  }
  std::uint64_t* barriers_ = nullptr;
  std::byte* ring_ = nullptr;
  int slots_ = 0;
  int slot_ = 0;
  std::uint32_t phase_ = 0;
#else
  const std::byte* codes_ = nullptr;
  const std::byte* scales_ = nullptr;
#endif
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

template <int Tiles, bool kGptq>
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
  ChunkStream stream(launch, shared, begin, end);
  float* parts = reinterpret_cast<float*>(shared + launch.parts_offset);
  const int first_tile = args.first_token / kTokenTile;
  dependency_wait();

  Sums<Tiles> totals;
  totals.clear();
  LaneInput<Tiles> input;
  int matrix = -1;
  bool more = !same(begin, end);
  while (more) {
    const Arrival arrival = stream.next();
    const ProductMatrix& m = args.matrices[arrival.matrix];
    if (arrival.matrix != matrix) {
      matrix = arrival.matrix;
      input.open({reinterpret_cast<const uint4*>(m.fragments), m.view.units}, first_tile,
                 args.first_token + args.tokens, lane);
    }
    ChunkSums<Tiles> sums;
    multiply_chunk(
        arrival.chunk, input, [&] { return stream.wait(); }, sums);
    LaneScales lane_scales;
    if constexpr (kGptq) {
      lane_scales.load_gptq(m.view, stream.scales(), lane);
    } else {
      lane_scales.load_exl2(stream.scales(), arrival.chunk, lane);
    }
    stream.release();
    apply_scales(lane_scales, sums, totals);
    more = !arrival.last;
    if (!more || arrival.chunk.ends_strip != 0) {
      const int slot = warp * 2 + (arrival.chunk.ends_strip != 0 ? 0 : 1);
      keep_sums(launch, totals, arrival.strip, made_whole(begin, end, arrival.strip),
                parts + slot * kStripColumns * args.tokens);
      totals.clear();
    }
  }
  __syncthreads();
  add_parts(launch, share, parts, arrived_last);
}

template <int Tiles, bool kGptq>
void start(ExecContext& ctx, const Launch& launch_args, int ctas, std::size_t shared_bytes) {
  BL_CUDA_CHECK(cudaFuncSetAttribute(product_kernel<Tiles, kGptq>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes)));
  launch(shape_of(ctx, dim3(static_cast<unsigned>(ctas)), kThreads, shared_bytes),
         product_kernel<Tiles, kGptq>, launch_args);
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
    BL_CHECK((args.matrices[i].view.kind == ScaleKind::kExl2) ==
             (args.matrices[0].view.kind == ScaleKind::kExl2));
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
  const bool gptq = args.matrices[0].view.kind != ScaleKind::kExl2;
  if (args.tokens <= kTokenTile) {
    (gptq ? start<1, true> : start<1, false>)(ctx, launch_args, plan.ctas, shared);
  } else {
    (gptq ? start<2, true> : start<2, false>)(ctx, launch_args, plan.ctas, shared);
  }
}

}  // namespace bl::cuda
