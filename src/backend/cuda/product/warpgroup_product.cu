#include "backend/cuda/product/warpgroup_product.h"

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/product/warpgroup_mma.cuh"
#include "backend/cuda/product/warpgroup_ring.cuh"
#include "base/check.h"

// A warp has one strip of codes, which it decodes into the A operand. Four warps with four strips
// are a warpgroup, which reads a chunk's activations once. The four warpgroups of a CTA are
// `across` strips and `along` chunks: chunks go round the warpgroups of the same strips, whose sums
// are added up in the end, in order.

namespace bl::cuda {
namespace {

constexpr int kThreads = kWarpgroupThreads + 32;  // the last warp issues the copies
constexpr int kWarpgroups = kWarpgroupWarps / 4;
constexpr int kMostTokens = kBrickColumns;  // more spill

struct Launch {
  ProductArgs args;
  WarpgroupRingShape ring;
  const std::int32_t* begins = nullptr;  // of shares
  int across = 1;                        // warpgroups side by side; 4 strips each
  int ring_at = 0;                       // in shared memory, behind Shared and kept sums
};

// What lies in shared memory before all else. Sums behind it: [warp][element][lane].
struct alignas(128) Shared {
  std::uint64_t barriers[2 * kMaxRingSlots];
  float token_scales[kMostTokens];
};

#if defined(__CUDA_ARCH__)

// Of the multiplying warps: those of the first warpgroups along k wait, the others arrive, or the
// other way round.
constexpr int kPartsWritten = 1;
constexpr int kPartsRead = 2;
__device__ __forceinline__ void wait_at(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kWarpgroupThreads) : "memory");
}
__device__ __forceinline__ void arrive_at(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kWarpgroupThreads) : "memory");
}

// A lane's operands of a chunk: unit, s, register.
struct ChunkOperands {
  std::uint32_t a[kMaxChunkUnits][2][4];

  // `codes`: of the strip and the chunk's first unit; units are `Stride` bytes apart. What lies
  // behind the chunk is decoded too.
  template <int Bits, int Stride>
  __device__ __forceinline__ void decode(const std::byte* codes) {
#pragma unroll
    for (int u = 0; u < kMaxChunkUnits; ++u) {
      UnitCodes<Bits> unit;
      unit.load(codes + u * Stride, lane_index());
#pragma unroll
      for (int s = 0; s < 2; ++s)
#pragma unroll
        for (int c = 0; c < 4; ++c) a[u][s][c] = unit.pair(c % 2, c / 2, s);
    }
  }
  __device__ __forceinline__ void clear_from(int units) {
#pragma unroll
    for (int u = 1; u < kMaxChunkUnits; ++u)
#pragma unroll
      for (int s = 0; s < 2; ++s)
#pragma unroll
        for (int c = 0; c < 4; ++c) a[u][s][c] = u < units ? a[u][s][c] : 0u;
  }
  // Any values: rows of a product that nobody reads.
  __device__ __forceinline__ void leave() {
#pragma unroll
    for (int u = 0; u < kMaxChunkUnits; ++u)
#pragma unroll
      for (int s = 0; s < 2; ++s)
#pragma unroll
        for (int c = 0; c < 4; ++c) asm volatile("" : "=r"(a[u][s][c]));
  }
};

// Where a warp finds what an entry brought; groups and units count from the strip's first.
struct EntryView {
  const uint4* chunk_words;
  const std::byte* scales;  // of its strip, as codes
  const std::byte* codes;
  std::uint32_t bricks;  // descriptor
  const float* sums;     // Σx of chunks, of this lane's tokens
};

// One warp's sums of 16 columns × Tokens tokens, as warpgroup_mma has them.
template <int Tokens, class Scales>
class WarpSums {
 public:
  static constexpr int kCount = Tokens / 2;
  static constexpr int kUnitBytes = Tokens * kFragmentBytes;
  float at[kCount];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) at[i] = 0.0f;
  }

  // `strip`: the warp's in the entry.
  __device__ __forceinline__ static EntryView view(const std::byte* entries,
                                                   const ChunkRunHeader& run, int strip) {
    // Where unit 0 would be: descriptors count round their 32 bits on the way.
    const std::uint32_t bricks =
        brick_descriptor(shared_address(entries + run.bricks_at), Tokens * 16) -
        static_cast<std::uint32_t>(run.first_unit) * (kUnitBytes / 16);
    return {run.chunk_words, entries + run.scales_from + strip * run.scale_stride,
            entries + run.codes_at + strip * run.code_stride, bricks,
            reinterpret_cast<const float*>(entries + run.sums_at) + lane_index() % 4 * 2};
  }

  // + the products of the entry's chunk. Warps that are not live take part in the warpgroup's.
  __device__ __forceinline__ void add(const CodeMatrixView& m, const EntryView& entry, int number,
                                      bool live) {
    Chunk chunk;
    *reinterpret_cast<uint4*>(&chunk) = entry.chunk_words[number];
    const int lane = lane_index();
    LaneScales scales{};
    ChunkOperands operands;
    const std::byte* codes = entry.codes + chunk.offset * std::uint32_t{unit_bytes(1)};
    if (live) {
      scales =
          Scales(m, chunk, lane, 1.0f).of(entry.scales + chunk.group * Scales::bytes(m.kind), lane);
      decode(chunk, codes, operands);
    } else {
      operands.leave();
    }
    if (chunk.bits == 8) {  // the high nibbles, times 16, which have no zero point
      const float larger[2] = {scales.scale[0] * 16.0f, scales.scale[1] * 16.0f};
      multiply(chunk, entry.bricks, operands);
#pragma unroll
      for (int i = 0; i < kCount; ++i) at[i] += larger[i / 2 % 2] * sums_[i];
      operands.decode<4, unit_bytes(8)>(codes + unit_bytes(4));
      if (chunk.units < kMaxChunkUnits) operands.clear_from(chunk.units);
    }
    multiply(chunk, entry.bricks, operands);
    if (!live) return;
#pragma unroll
    for (int n = 0; n < Tokens / 8; ++n) {
      const float2 x = *reinterpret_cast<const float2*>(entry.sums + number * Tokens + 8 * n);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float sum = sums_[4 * n + c] - scales.zero[c / 2] * (c % 2 == 0 ? x.x : x.y);
        at[4 * n + c] += scales.scale[c / 2] * sum;
      }
    }
  }

 private:
  __device__ __forceinline__ static void decode(const Chunk& chunk, const std::byte* codes,
                                                ChunkOperands& operands) {
    if (chunk.bits == 4) {
      operands.decode<4, unit_bytes(4)>(codes);
    } else if (chunk.bits == 3) {
      operands.decode<3, unit_bytes(3)>(codes);
    } else if (chunk.bits == 2) {
      operands.decode<2, unit_bytes(2)>(codes);
    } else if (chunk.bits == 5) {
      operands.decode<5, unit_bytes(5)>(codes);
    } else if (chunk.bits == 6) {
      operands.decode<6, unit_bytes(6)>(codes);
    } else {
      operands.decode<4, unit_bytes(8)>(codes);
    }
    if (chunk.units < kMaxChunkUnits) {
      asm volatile("" ::: "memory");  // a branch: chunks are whole, mostly
      operands.clear_from(chunk.units);
    }
  }

  // sums_ = operands · activations.
  __device__ __forceinline__ void multiply(const Chunk& chunk, std::uint32_t bricks,
                                           const ChunkOperands& operands) {
    // The same in all lanes, and known to be: descriptors are in uniform registers.
    const std::uint32_t first =
        __shfl_sync(kAllLanes, bricks + chunk.first_unit * std::uint32_t{kUnitBytes / 16}, 0);
    const int units = __shfl_sync(kAllLanes, static_cast<int>(chunk.units), 0);
    settle(sums_);
    begin_products();
#pragma unroll
    for (int u = 0; u < kMaxChunkUnits; ++u) {
      // Of units that are not there the first one's, times zeros.
      const std::uint32_t unit = u < units ? first + u * (kUnitBytes / 16) : first;
      warpgroup_mma(sums_, operands.a[u][0], unit, u > 0);
      warpgroup_mma(sums_, operands.a[u][1], unit + kUnitBytes / 32, true);
    }
    commit_products();
    wait_products<0>();
    settle(sums_);
  }

  float sums_[kCount];
};

// Where a warp's results go: rows of tokens 8n + 2t + e, columns 8h + g of its strip.
template <int Tokens, class Scales>
class WarpResults {
 public:
  using Sums = WarpSums<Tokens, Scales>;
  // `gates`: room of this warp's lane for the first results of a gated product, 32 apart.
  __device__ __forceinline__ WarpResults(const ProductArgs& args, const float* token_scales,
                                         float* gates)
      : args_(args), token_scales_(token_scales), gates_(gates) {}

  __device__ __forceinline__ void store(int matrix, int strip, const Sums& sums) {
    const ProductMatrix& m = args_.matrices[matrix];
    const int first = strip * kStripColumns + lane_index() / 4;
    const bool is_gate = args_.gated && matrix == 0;
    const bool accumulate = args_.accumulate && !is_gate;
    float* to = m.out + args_.first_token * m.out_stride + first;
    float before[Sums::kCount];
#pragma unroll
    for (int i = 0; i < Sums::kCount; ++i) {
      before[i] = 0.0f;
      if (accumulate && token(i) < args_.tokens && first + column(i) < m.view.out) {
        before[i] = to[token(i) * m.out_stride + column(i)];
      }
    }
    const float factor = args_.multiplier * (1.0f / kCodeUnit);
    float bias[2] = {0.0f, 0.0f};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (m.bias != nullptr && first + 8 * h < m.view.out) bias[h] = m.bias[first + 8 * h];
    }
#pragma unroll
    for (int i = 0; i < Sums::kCount; ++i) {
      if (token(i) >= args_.tokens || first + column(i) >= m.view.out) continue;
      float value = sums.at[i] * token_scales_[token(i)] * factor + bias[i / 2 % 2];
      if (is_gate) {
        gates_[i * 32] = value;
        continue;
      }
      if (args_.gated) value = activated(args_.activation, gates_[i * 32], value, true);
      to[token(i) * m.out_stride + column(i)] = before[i] + value;
    }
  }

 private:
  __device__ __forceinline__ static int token(int i) {
    return i / 4 * 8 + lane_index() % 4 * 2 + i % 2;
  }
  __device__ __forceinline__ static int column(int i) { return i / 2 % 2 * 8; }

  const ProductArgs& args_;
  const float* token_scales_;
  float* gates_;
};

template <int Tokens, class Scales>
__device__ __forceinline__ void multiply_share(const Launch& launch, std::byte* shared,
                                               WarpgroupRing& ring) {
  using Sums = WarpSums<Tokens, Scales>;
  const ProductArgs& args = launch.args;
  auto& own = *reinterpret_cast<Shared*>(shared);
  const int warpgroup = warp_index() / 4;
  const int across = launch.across;
  const int along = kWarpgroups / across;
  const int turn = warpgroup / across;  // of the chunks
  // Strip; warps that have none are not the same of every warpgroup, since warps of equal place in
  // theirs share a scheduler.
  const int first = warpgroup % across * 4 + (warp_index() + turn) % 4;
  // Sums of the other warpgroups along k: [along − 1][strips][element][lane]; then gates.
  float* const kept = reinterpret_cast<float*>(shared + sizeof(Shared)) + lane_index();
  const auto part = [&](int number) { return kept + number * (Sums::kCount * 32); };
  dependency_wait();
  if (static_cast<int>(threadIdx.x) < args.tokens) {
    own.token_scales[threadIdx.x] = args.token_scales[args.first_token + threadIdx.x];
  }
  wait_at(kPartsWritten);
  WarpResults<Tokens, Scales> results(args, own.token_scales,
                                      part((along - 1) * 4 * across + first));
  Sums sums;
  sums.clear();
  int next = turn;
  int flags = 0;
  bool again = false;
  do {
    const ChunkRunHeader& run = ring.next();
    const int matrix = run.matrix;
    const int strips = run.strips;
    const int first_strip = run.first_strip;
    const int chunks = run.chunks;
    flags = run.flags;
    if (next < chunks) {
      const EntryView entry = Sums::view(ring.entries(), run, min(first, strips - 1));
      const CodeMatrixView& m = args.matrices[matrix].view;
      do {
        sums.add(m, entry, next, first < strips);
        next += along;
      } while (next < chunks);
    }
    next -= chunks;
    ring.release();
    if ((flags & kEndsStrips) == 0) continue;
    next = turn;
    if (turn > 0) {
      if (again) wait_at(kPartsRead);
      float* to = part((turn - 1) * 4 * across + first);
#pragma unroll
      for (int i = 0; i < Sums::kCount; ++i) to[i * 32] = sums.at[i];
      arrive_at(kPartsWritten);
    } else {
      if (along > 1) wait_at(kPartsWritten);
      for (int k = 1; k < along; ++k) {
        const float* from = part((k - 1) * 4 * across + first);
#pragma unroll
        for (int i = 0; i < Sums::kCount; ++i) sums.at[i] += from[i * 32];
      }
      if (along > 1 && (flags & kEndsShare) == 0) arrive_at(kPartsRead);
      if (first < strips) results.store(matrix, first_strip + first, sums);
    }
    again = true;
    sums.clear();
  } while ((flags & kEndsShare) == 0);
}

#endif

template <int Tokens, bool kGptq>
__global__ void __launch_bounds__(kThreads, 1)
    warpgroup_product_kernel(const __grid_constant__ Launch launch) {
#if defined(__CUDA_ARCH__)
  extern __shared__ __align__(128) std::byte shared[];
  allow_next();
  const int begin = launch.begins[blockIdx.x];
  const int end = launch.begins[blockIdx.x + 1];
  const PieceWalk walk(launch.args, begin, end, launch.ring.strips);
  auto& own = *reinterpret_cast<Shared*>(shared);
  WarpgroupRing ring(launch.ring, shared + launch.ring_at, own.barriers);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  if (threadIdx.x >= kWarpgroupThreads) {
    ring.produce(launch.args, walk);
    return;
  }
  multiply_share<Tokens, std::conditional_t<kGptq, GptqScales, ExlScales>>(launch, shared, ring);
#endif
}

// Warpgroups side by side and strips at once, where a CTA has so many.
void share_out(int strips, Launch& launch) {
  launch.across = strips <= 4 ? 1 : strips <= 8 ? 2 : 4;
  const int most = 4 * launch.across;
  const int rounds = (strips + most - 1) / most;
  launch.ring.strips = (strips + rounds - 1) / rounds;
}

// Lays out shared memory; returns its bytes.
int lay_out(const DeviceFacts& facts, int tokens, int ctas, Launch& launch) {
  const ProductArgs& args = launch.args;
  int strips = 0;
  int scales = 0;
  std::int64_t bytes = 0;
  std::int64_t units = 0;
  for (int i = 0; i < args.count; ++i) {
    const CodeMatrixView& m = args.matrices[i].view;
    if (!args.gated || i == 0) strips += m.strips;
    scales = std::max(scales, scale_bytes(m.kind));
    bytes += m.strip_bytes;
    units += m.units;
  }
  share_out((strips + ctas - 1) / ctas, launch);
  const int along = kWarpgroups / launch.across;
  const int parts = (along - 1 + (args.gated ? 1 : 0)) * 4 * launch.across;
  launch.ring_at = RingShape::rounded(static_cast<int>(sizeof(Shared)) +
                                      parts * tokens / 2 * 32 * static_cast<int>(sizeof(float)));
  WarpgroupRingShape& ring = launch.ring;
  ring.columns = tokens;
  const auto whole = static_cast<int>(facts.shared_bytes_per_cta);
  ring.bytes = (whole - launch.ring_at - kRunHeadersBytes) / 128 * 128;
  // As long as four entries of the usual width fit.
  const auto usual = static_cast<int>(ring.strips * bytes / units) + ring.brick_bytes();
  ring.chunks = kMostEntryChunks;
  while (ring.chunks > 1 && (4 * ring.chunks * kMaxChunkUnits * usual > ring.bytes ||
                             ring.largest_entry(scales) > ring.bytes)) {
    ring.chunks /= 2;
  }
  BL_CHECK(ring.largest_entry(scales) <= ring.bytes);
  return whole;
}

template <int Tokens>
void start(ExecContext& ctx, Launch& launch_args, int ctas) {
  const int bytes = lay_out(cuda_ops_of(ctx).backend->facts(), Tokens, ctas, launch_args);
  const bool gptq = launch_args.args.matrices[0].view.kind != ScaleKind::kExl2;
  const auto kernel =
      gptq ? warpgroup_product_kernel<Tokens, true> : warpgroup_product_kernel<Tokens, false>;
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  launch(
      shape_of(ctx, dim3(static_cast<unsigned>(ctas)), kThreads, static_cast<std::size_t>(bytes)),
      kernel, launch_args);
}

}  // namespace

int most_warpgroup_tokens(const DeviceFacts& facts) {
  return facts.compute_capability == 90 ? kMostTokens : 0;
}

void warpgroup_product(ExecContext& ctx, const ProductArgs& args, const StripShares& shares) {
  BL_CHECK(args.tokens > 0 && args.tokens <= kMostTokens);
  check_product(args);
  Launch launch_args;
  launch_args.args = args;
  launch_args.begins = shares.begins;
  if (args.tokens <= 8) {
    start<8>(ctx, launch_args, shares.ctas);
  } else if (args.tokens <= 16) {
    start<16>(ctx, launch_args, shares.ctas);
  } else {
    start<32>(ctx, launch_args, shares.ctas);
  }
}

}  // namespace bl::cuda
