#include <algorithm>

#include "backend/cuda/bulk_copy.cuh"
#include "backend/cuda/code_product.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/product.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kSlotBytes = kMaxChunkBytes + 256;  // a chunk and its scales

// Where a warp is in the work of a launch: all strips of all matrices, chunk by chunk.
struct Cursor {
  int matrix = 0;
  int strip = 0;
  int chunk = 0;
  __device__ bool operator==(const Cursor& o) const {
    return matrix == o.matrix && strip == o.strip && chunk == o.chunk;
  }
  __device__ bool before(const Cursor& o) const {
    if (matrix != o.matrix) return matrix < o.matrix;
    return strip != o.strip ? strip < o.strip : chunk < o.chunk;
  }
};

struct Launch {
  ProductArgs args;
  std::uint64_t weight_before[kMaxMatrices + 1];
  int strips_before[kMaxMatrices];
  float* partials = nullptr;  // [ctas][2][64][tokens]
  std::int32_t* counters = nullptr;
  int ring_slots = 0;    // of a warp
  int parts_offset = 0;  // in shared memory, behind the rings
};

// The parts of strips that the warps of a CTA made.
struct Parts {
  float* sums;  // [warps][2][64][tokens]
  bool* made;   // [warps][2]: a share may be empty
};

// One of several equal shares of the work.
struct Share {
  int index;
  int count;
};

__device__ __forceinline__ std::uint64_t total_weight(const Launch& launch) {
  return launch.weight_before[launch.args.count];
}

// Which of `parts` equal shares of the work a chunk that starts at `weight` belongs to.
__device__ __forceinline__ int owner_of(std::uint64_t weight, int parts, std::uint64_t total) {
  return static_cast<int>(weight * static_cast<std::uint64_t>(parts) / total);
}

// The first chunk of share `part`: the first whose weight before it is ≥ total · part / parts. All
// lanes of the warp take part.
__device__ Cursor share_begin(const Launch& launch, int part, int parts, int lane) {
  const std::uint64_t total = total_weight(launch);
  const std::uint64_t target =
      (total * static_cast<std::uint64_t>(part) + parts - 1) / static_cast<std::uint64_t>(parts);
  Cursor cursor;
  if (target >= total) {
    cursor.matrix = launch.args.count;
    return cursor;
  }
  while (launch.weight_before[cursor.matrix + 1] <= target) ++cursor.matrix;
  const CodeMatrixView& m = launch.args.matrices[cursor.matrix].view;
  const auto rest = static_cast<std::uint32_t>(target - launch.weight_before[cursor.matrix]);
  cursor.strip = static_cast<int>(rest / m.strip_weight);
  const std::uint32_t within = rest % m.strip_weight;
  for (int base = 0; base < m.chunk_count; base += 32) {
    const bool before = base + lane < m.chunk_count && m.chunks[base + lane].weight < within;
    cursor.chunk += __popc(__ballot_sync(0xffffffffu, before));
  }
  if (cursor.chunk == m.chunk_count) {
    cursor.chunk = 0;
    if (++cursor.strip == m.strips) {
      cursor.strip = 0;
      ++cursor.matrix;
    }
  }
  return cursor;
}

__device__ __forceinline__ void advance(const Launch& launch, Cursor& cursor) {
  const CodeMatrixView& m = launch.args.matrices[cursor.matrix].view;
  if (++cursor.chunk < m.chunk_count) return;
  cursor.chunk = 0;
  if (++cursor.strip < m.strips) return;
  cursor.strip = 0;
  ++cursor.matrix;
}

__device__ __forceinline__ Chunk chunk_at(const CodeMatrixView& m, int index) {
  const uint4 bits = *reinterpret_cast<const uint4*>(m.chunks + index);
  Chunk chunk;
  *reinterpret_cast<uint4*>(&chunk) = bits;
  return chunk;
}

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
  __device__ ChunkStream(const Launch& launch, std::byte* shared, int warp, int lane)
      : launch_(launch), lane_(lane) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    slots_ = launch.ring_slots;
    barriers_ = reinterpret_cast<std::uint64_t*>(shared) + warp * slots_;
    ring_ = shared + barrier_bytes(slots_) + warp * slots_ * kSlotBytes;
    if (lane == 0) {
      for (int i = 0; i < slots_; ++i) barrier_init(barriers_ + i, 1);
      barrier_init_fence();
    }
    __syncwarp();
#endif
  }
  BL_HD static constexpr int barrier_bytes(int slots) {
    return (kWarps * slots * 8 + 127) / 128 * 128;
  }
  BL_HD static constexpr int ring_bytes(int slots) {
    return barrier_bytes(slots) + kWarps * slots * kSlotBytes;
  }

  // Starts the copies of as many chunks as the ring holds.
  __device__ void open(const Cursor& begin, const Cursor& end) {
    next_ = begin;
    end_ = end;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    for (int i = 0; i < slots_ && !(next_ == end_); ++i) issue(i);
#endif
  }

  // Codes and scales of the next chunk, in the order of the cursors.
  __device__ void wait(const CodeMatrixView& m, int strip, const Chunk& chunk,
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
  __device__ void release() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __syncwarp();
    if (!(next_ == end_)) issue(slot_);
    if (++slot_ == slots_) {
      slot_ = 0;
      phase_ ^= 1u;
    }
#endif
  }

 private:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ void issue(int slot) {
    const CodeMatrixView& m = launch_.args.matrices[next_.matrix].view;
    const Chunk chunk = chunk_at(m, next_.chunk);
    if (lane_ == 0) {
      std::byte* to = ring_ + slot * kSlotBytes;
      const int bytes = chunk.units * unit_bytes(chunk.bits);
      barrier_expect(barriers_ + slot, bytes + scale_bytes(m.kind));
      bulk_copy(to, codes_of(m, next_.strip, chunk), bytes, barriers_ + slot);
      bulk_copy(to + kMaxChunkBytes, scales_of(m, next_.strip, chunk), scale_bytes(m.kind),
                barriers_ + slot);
    }
    advance(launch_, next_);
  }
  std::uint64_t* barriers_ = nullptr;
  std::byte* ring_ = nullptr;
  int slots_ = 0;
  int slot_ = 0;
  std::uint32_t phase_ = 0;
#endif
  const Launch& launch_;
  int lane_;
  Cursor next_;
  Cursor end_;
};

// The results of one column and token.
__device__ __forceinline__ void store(const ProductArgs& args, const ProductMatrix& m, int column,
                                      int token, float sum) {
  if (column >= m.view.out) return;
  float value = sum * args.token_scales[args.first_token + token] * args.multiplier;
  if (m.bias != nullptr) value += m.bias[column];
  float* to = m.out + (args.first_token + token) * m.out_stride + column;
  *to = args.accumulate ? *to + value : value;
}

// Calls f(column, token, value) for every sum of this lane whose token exists.
template <int Tiles, class F>
__device__ __forceinline__ void for_each_sum(const Sums<Tiles>& sums, int tokens, int lane, F&& f) {
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int token = n * kTokenTile + 2 * (lane % 4) + c % 2;
      if (token >= tokens) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        f(16 * i + 8 * (c / 2) + lane / 4, token, sums.at[n][i][c]);
      }
    }
}

// A strip's part that a share began is in slot 1 (the share ends before the strip does), one that
// it ended without having begun in slot 0; a strip that lies in one share needs no slot.
struct StripShares {
  int first;  // share that owns its first chunk
  int last;   // and its last
};

__device__ __forceinline__ StripShares shares_of(const Launch& launch, int matrix, int strip,
                                                 int parts) {
  const CodeMatrixView& m = launch.args.matrices[matrix].view;
  const std::uint64_t begin =
      launch.weight_before[matrix] + static_cast<std::uint64_t>(strip) * m.strip_weight;
  const std::uint64_t last = begin + m.chunks[m.chunk_count - 1].weight;
  const std::uint64_t total = total_weight(launch);
  return {owner_of(begin, parts, total), owner_of(last, parts, total)};
}

template <int Tiles>
__device__ void finish_strip_part(const Launch& launch, const Cursor& at, const Sums<Tiles>& totals,
                                  const Share& share, const Parts& parts, int lane) {
  const StripShares owners = shares_of(launch, at.matrix, at.strip, share.count);
  const ProductMatrix& m = launch.args.matrices[at.matrix];
  const int tokens = launch.args.tokens;
  if (owners.first == owners.last) {
    for_each_sum(totals, tokens, lane, [&](int column, int token, float value) {
      store(launch.args, m, at.strip * kStripColumns + column, token, value);
    });
    return;
  }
  const int slot = owners.last == share.index ? 0 : 1;
  const int index = (share.index % kWarps) * 2 + slot;
  float* part = parts.sums + index * kStripColumns * tokens;
  if (lane == 0) parts.made[index] = true;
  for_each_sum(totals, tokens, lane,
               [&](int column, int token, float value) { part[column * tokens + token] = value; });
}

// Sums the warps' parts of one strip; where other CTAs have parts too, the last one to arrive adds
// them in order of the CTAs.
__device__ void reduce_strip(const Launch& launch, const Cursor& at, const Parts& parts,
                             int* last_flag) {
  const int ctas = static_cast<int>(gridDim.x);
  const int cta = static_cast<int>(blockIdx.x);
  const StripShares warps = shares_of(launch, at.matrix, at.strip, ctas * kWarps);
  if (warps.first == warps.last) return;  // written by its warp
  const int tokens = launch.args.tokens;
  const int count = kStripColumns * tokens;
  const ProductMatrix& m = launch.args.matrices[at.matrix];
  const int first_cta = warps.first / kWarps;
  const int last_cta = warps.last / kWarps;
  const int from = max(warps.first, cta * kWarps);
  const int to = min(warps.last, cta * kWarps + kWarps - 1);
  const auto sum_of_warps = [&](int e) {
    float sum = 0.0f;
    for (int w = from; w <= to; ++w) {
      const int index = (w % kWarps) * 2 + (w == warps.last ? 0 : 1);
      if (parts.made[index]) sum += parts.sums[index * count + e];
    }
    return sum;
  };
  const int first_column = at.strip * kStripColumns;
  if (first_cta == last_cta) {
    for (int e = static_cast<int>(threadIdx.x); e < count; e += kThreads) {
      store(launch.args, m, first_column + e / tokens, e % tokens, sum_of_warps(e));
    }
    return;
  }
  float* mine = launch.partials + (cta * 2 + (cta == last_cta ? 0 : 1)) * count;
  for (int e = static_cast<int>(threadIdx.x); e < count; e += kThreads) mine[e] = sum_of_warps(e);
  __threadfence();
  __syncthreads();
  std::int32_t* counter = launch.counters + launch.strips_before[at.matrix] + at.strip;
  if (threadIdx.x == 0) {
    const int before = atomicAdd(counter, 1);
    *last_flag = before == last_cta - first_cta;
    if (*last_flag != 0) *counter = 0;
  }
  __syncthreads();
  if (*last_flag != 0) {
    __threadfence();
    for (int e = static_cast<int>(threadIdx.x); e < count; e += kThreads) {
      float sum = 0.0f;
      for (int c = first_cta; c <= last_cta; ++c) {
        sum += __ldcg(launch.partials + (c * 2 + (c == last_cta ? 0 : 1)) * count + e);
      }
      store(launch.args, m, first_column + e / tokens, e % tokens, sum);
    }
  }
  __syncthreads();
}

template <int Tiles>
__global__ void __launch_bounds__(kThreads, Tiles == 1 ? 2 : 1)
    product_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ int last_flag;
  __shared__ bool made[kWarps * 2];
  allow_next();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int ctas = static_cast<int>(gridDim.x);
  const int cta = static_cast<int>(blockIdx.x);
  const int share = cta * kWarps + warp;
  const ProductArgs& args = launch.args;
  const int first_tile = args.first_token / kTokenTile;
  Cursor cursor = share_begin(launch, share, ctas * kWarps, lane);
  const Cursor end = share_begin(launch, share + 1, ctas * kWarps, lane);
  ChunkStream stream(launch, shared, warp, lane);
  stream.open(cursor, end);
  const Parts parts{reinterpret_cast<float*>(shared + launch.parts_offset), made};
  if (threadIdx.x < kWarps * 2) made[threadIdx.x] = false;
  __syncthreads();
  dependency_wait();

  Sums<Tiles> totals;
  totals.clear();
  while (!(cursor == end)) {
    const ProductMatrix& m = args.matrices[cursor.matrix];
    const Chunk chunk = chunk_at(m.view, cursor.chunk);
    const Fragments fragments{reinterpret_cast<const uint4*>(m.input.fragments), m.input.sums,
                              m.view.units};
    LaneInput<Tiles> input;
    input.open(fragments, first_tile, args.first_token + args.tokens, lane);
    const float group_scale =
        m.view.kind == ScaleKind::kExl2 ? m.view.group_scales[chunk.group] : 0.0f;
    float2 x_sums[Tiles];
    load_sums(fragments, first_tile, chunk, lane, x_sums);
    const std::byte* codes = nullptr;
    const std::byte* scales = nullptr;
    stream.wait(m.view, cursor.strip, chunk, codes, scales);
    Sums<Tiles> sums;
    multiply_chunk(codes, chunk, input, lane, sums);
    LaneScales lane_scales;
    lane_scales.load(m.view, scales, group_scale, chunk.bits, lane);
    stream.release();
    apply_scales(lane_scales, sums, x_sums, totals);
    const Cursor at = cursor;
    advance(launch, cursor);
    if (cursor == end || cursor.chunk == 0) {
      finish_strip_part(launch, at, totals, {share, ctas * kWarps}, parts, lane);
      totals.clear();
    }
  }
  __syncthreads();
  Cursor strip = share_begin(launch, cta, ctas, lane);
  const Cursor last = share_begin(launch, cta + 1, ctas, lane);
  while (strip.before(last)) {
    reduce_strip(launch, strip, parts, &last_flag);
    strip.chunk = 0;
    if (++strip.strip == args.matrices[strip.matrix].view.strips) {
      strip.strip = 0;
      ++strip.matrix;
    }
  }
}

// A CTA must get a chunk at least, or it would be waited for in vain.
int cta_count(const Launch& launch, std::uint64_t total, int multiprocessors) {
  std::uint64_t heaviest = 1;
  for (int i = 0; i < launch.args.count; ++i) {
    heaviest = std::max<std::uint64_t>(heaviest, kMaxChunkBytes / 256 + 2);
  }
  return static_cast<int>(std::max<std::uint64_t>(
      1, std::min<std::uint64_t>(static_cast<std::uint64_t>(multiprocessors), total / heaviest)));
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
  return static_cast<std::size_t>(multiprocessors) * 2 * kStripColumns * kMaxProductTokens *
         sizeof(float);
}

void product(ExecContext& ctx, const ProductArgs& args, std::int32_t* counters) {
  BL_CHECK(args.tokens > 0 && args.tokens <= kMaxProductTokens);
  BL_CHECK(args.first_token % kTokenTile == 0);
  Launch launch_args;
  launch_args.args = args;
  launch_args.counters = counters;
  std::uint64_t weight = 0;
  int strips = 0;
  for (int i = 0; i < args.count; ++i) {
    const CodeMatrixView& m = args.matrices[i].view;
    launch_args.weight_before[i] = weight;
    launch_args.strips_before[i] = strips;
    weight += static_cast<std::uint64_t>(m.strips) * m.strip_weight;
    strips += m.strips;
  }
  launch_args.weight_before[args.count] = weight;
  const int ctas = cta_count(launch_args, weight, cuda_ops_of(ctx).multiprocessors);
  ArenaScope scope(*ctx.scratch);
  launch_args.partials =
      ctx.scratch->take_f32({std::int64_t{ctas} * 2 * kStripColumns * args.tokens}).as<float>();
  launch_args.ring_slots = args.tokens <= 2 ? 3 : 2;
  const int ring = ChunkStream::ring_bytes(launch_args.ring_slots);
  launch_args.parts_offset = ring;
  const std::size_t shared =
      static_cast<std::size_t>(ring) +
      static_cast<std::size_t>(kWarps * 2 * kStripColumns * args.tokens) * sizeof(float);
  if (args.tokens <= kTokenTile) {
    start<1>(ctx, launch_args, ctas, shared);
  } else {
    start<2>(ctx, launch_args, ctas, shared);
  }
}

}  // namespace bl::cuda
