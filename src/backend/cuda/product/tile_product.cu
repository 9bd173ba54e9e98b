#include "backend/cuda/product/tile_product.h"

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/tensor_map.h"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/device/wgmma.cuh"
#include "backend/cuda/product/raised_codes.cuh"
#include "base/check.h"

// A CTA stays on its multiprocessor and goes from tile to tile, 128 columns of a matrix × 256 rows
// each. One warp asks for what the next steps of 64 slots need: rows by the copy engine, codes as
// they are. Two warpgroups have 64 columns each, a strip a warp: columns are the rows of the tensor
// cores' operand A, which is decoded in registers while the products of the step before run.

namespace bl::cuda {
namespace {

constexpr int kConsumers = 2;  // warpgroups that multiply
constexpr int kConsumerWarps = 4 * kConsumers;
constexpr int kTileStrips = kConsumerWarps;
constexpr int kTileRows = 256;
constexpr int kStepUnits = 2;  // 64 slots: the 128 bytes of a row that the copy engine swizzles
constexpr int kRowsBytes = kTileRows * kStepUnits * kUnitSlots * 2;
constexpr int kThreads = 128 * (1 + kConsumers);
constexpr int kMostStages = 6;

// What a warp has to know of a unit of a strip.
struct alignas(16) UnitEntry {
  std::uint32_t offset;  // of its codes, bytes from the strip's start, in 64
  float group_scale;
  std::uint16_t group;
  std::uint8_t bits;
  std::uint8_t begins_group;
  std::uint32_t unused;
};

struct Launch {
  TileProductArgs args;
  int first_tiles[kMaxMatrices + 1];  // of columns; the last: of all
  int row_tiles = 0;
  int steps = 0;
  int stages = 0;
  int strip_room = 0;   // bytes of a strip's codes of a step
  int stage_bytes = 0;  // of rows and codes
  int tables_at = 0;    // in shared memory: [matrix][units + 1] entries
};

struct Barriers {
  std::uint64_t there[kMostStages];
  std::uint64_t used[kMostStages];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// One tile, and where its parts come from.
struct Tile {
  int matrix;
  int first_strip;
  int first_row;

  __device__ __forceinline__ Tile(const Launch& launch, int number) {
    const int column_tile = number / launch.row_tiles;
    first_row = number % launch.row_tiles * kTileRows;
    matrix = 0;
#pragma unroll
    for (int i = 1; i < kMaxMatrices; ++i) {
      if (i < launch.args.count && column_tile >= launch.first_tiles[i]) matrix = i;
    }
    first_strip = (column_tile - launch.first_tiles[matrix]) * kTileStrips;
  }
};

// Places in the ring go round.
struct Stage {
  int index = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void next(int stages) {
    if (++index < stages) return;
    index = 0;
    phase ^= 1u;
  }
};

// Scales of this lane's columns h = 0, 1, as halves twice, and what raised codes are too large by.
struct UnitScales {
  __half2 scale[2];
  __half2 low[2];   // kLowBase + zero
  __half2 high[2];  // kHighBase + zero
};

// A lane's scales of a group as they lie in memory.
template <bool kGptq>
struct RawScales {
  std::uint32_t scales = 0;
  std::uint32_t zeros = 0;

  __device__ __forceinline__ void load(const CodeMatrixView& m, const std::byte* strip, int group) {
    const int g = lane_index() / 4;
    if constexpr (!kGptq) {
      scales = __ldg(reinterpret_cast<const std::uint8_t*>(strip) + group * 8 + g);
    } else {
      const std::byte* at = strip + group * scale_bytes(m.kind);
      scales = __ldg(reinterpret_cast<const std::uint32_t*>(at) + g);
      if (m.kind == ScaleKind::kGptqZeros4) {
        zeros = __ldg(reinterpret_cast<const std::uint8_t*>(at) + 32 + g);
      } else if (m.kind == ScaleKind::kGptqZeros16) {
        zeros = __ldg(reinterpret_cast<const std::uint32_t*>(at) + 8 + g);
      }
    }
  }

  __device__ __forceinline__ UnitScales of(const CodeMatrixView& m, const UnitEntry& unit) const {
    UnitScales result;
    float zero[2];
    if constexpr (!kGptq) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const auto code = static_cast<float>((scales >> 4 * h & 15u) + 1);
        result.scale[h] = __float2half2_rn(code * code * unit.group_scale);
        zero[h] = __uint_as_float((126u + unit.bits) << 23);  // 2^(bits − 1)
      }
    } else {
      result.scale[0] = __half2half2(__low2half(halves_of(scales)));
      result.scale[1] = __half2half2(__high2half(halves_of(scales)));
      const bool wide = m.kind == ScaleKind::kGptqZeros16;
      const auto base = wide ? 0.0f : static_cast<float>(m.zero);
      zero[0] = base + static_cast<float>(zeros & (wide ? 0xffffu : 15u));
      zero[1] = base + static_cast<float>(zeros >> (wide ? 16 : 4));
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      result.low[h] = __float2half2_rn(kLowBase + zero[h]);
      result.high[h] = __float2half2_rn(kHighBase + zero[h]);
    }
    return result;
  }
};

// The warp that asks for all that the CTA's tiles need.
__device__ __forceinline__ void fetch(const Launch& launch, const CUtensorMap& rows,
                                      std::byte* memory, Barriers& barriers) {
  const int lane = lane_index();
  const int tiles = launch.first_tiles[launch.args.count] * launch.row_tiles;
  const auto* tables = reinterpret_cast<const UnitEntry*>(memory + launch.tables_at);
  const int units = launch.args.matrices[0].view.units;
  Stage stage;
  dependency_wait();
  for (auto number = static_cast<int>(blockIdx.x); number < tiles;
       number += static_cast<int>(gridDim.x)) {
    const Tile tile(launch, number);
    const CodeMatrixView& m = launch.args.matrices[tile.matrix].view;
    const int strips = min(kTileStrips, m.strips - tile.first_strip);
    const UnitEntry* table = tables + tile.matrix * (units + 1);
    const std::byte* codes = m.codes + (tile.first_strip + min(lane, strips - 1)) * m.strip_bytes;
    for (int step = 0; step < launch.steps; ++step) {
      const int unit = step * kStepUnits;
      const std::uint32_t from = table[unit].offset;
      const auto bytes = static_cast<int>(table[min(unit + kStepUnits, units)].offset - from) * 64;
      std::byte* to = memory + stage.index * launch.stage_bytes;
      std::uint64_t* there = &barriers.there[stage.index];
      barrier_wait(&barriers.used[stage.index], stage.phase ^ 1u);
      if (lane == 0) {
        barrier_expect(there, kRowsBytes + strips * bytes);
        tensor_copy(to, &rows, unit * kUnitSlots, tile.first_row, there);
      }
      __syncwarp();
      if (lane < strips) {
        bulk_copy(to + kRowsBytes + lane * launch.strip_room, codes + std::uint64_t{from} * 64,
                  bytes, there);
      }
      stage.next(launch.stages);
    }
  }
}

template <bool kGptq, bool kHalves>
class TileMultiplier {
 public:
  __device__ __forceinline__ TileMultiplier(const Launch& launch, std::byte* memory,
                                            Barriers& barriers)
      : launch_(launch), memory_(memory), barriers_(barriers), warp_(warp_index() - 4) {}

  __device__ __forceinline__ void run() {
    const int tiles = launch_.first_tiles[launch_.args.count] * launch_.row_tiles;
    const float alpha = *launch_.args.alpha;
    for (auto number = static_cast<int>(blockIdx.x); number < tiles;
         number += static_cast<int>(gridDim.x)) {
      const Tile tile(launch_, number);
      open(tile);
      for (int step = 0; step < launch_.steps; step += 2) {
        multiply<0>(step);
        if (step + 1 < launch_.steps) multiply<1>(step + 1);
      }
      wait_products<0>();
      settle(sums_);
      release();
      is_pending_ = false;
      store(tile, alpha);
    }
  }

 private:
  __device__ __forceinline__ const CodeMatrixView& view() const {
    return launch_.args.matrices[matrix_].view;
  }
  __device__ __forceinline__ UnitEntry entry(int unit) const {
    UnitEntry result;
    *reinterpret_cast<uint4*>(&result) = *reinterpret_cast<const uint4*>(table_ + unit);
    return result;
  }

  __device__ __forceinline__ void open(const Tile& tile) {
    matrix_ = tile.matrix;
    const CodeMatrixView& m = view();
    table_ = reinterpret_cast<const UnitEntry*>(memory_ + launch_.tables_at) +
             tile.matrix * (m.units + 1);
    // Warps without a strip do as if: their rows of the product are not written.
    const int strip = min(tile.first_strip + warp_, m.strips - 1);
    scales_ = m.scales + strip * scale_stride(m.kind, m.groups);
#pragma unroll
    for (int u = 0; u < kStepUnits; ++u) {
      if (u < m.units) raw_[u].load(m, scales_, entry(u).group);
    }
  }

  // Begins the products of a step, and ends those of the step before. kBuffer: step % 2.
  template <int kBuffer>
  __device__ __forceinline__ void multiply(int step) {
    const CodeMatrixView& m = view();
    barrier_wait(&barriers_.there[stage_.index], stage_.phase);
    const std::byte* rows = memory_ + stage_.index * launch_.stage_bytes;
    const std::byte* codes = rows + kRowsBytes + warp_ * launch_.strip_room;
    const int unit = step * kStepUnits;
#pragma unroll
    for (int u = 0; u < kStepUnits; ++u) {
      if (u > 0 && unit + u >= m.units) {  // the copy engine has brought zeros for it
        clear(a_[kBuffer][u]);
        break;
      }
      const UnitEntry of = entry(unit + u);
      if (of.begins_group != 0) unit_scales_ = raw_[u].of(m, of);
      decode(of.bits, codes, a_[kBuffer][u]);
      codes += of.bits * unit_bytes(1);
    }
#pragma unroll
    for (int u = 0; u < kStepUnits; ++u) {  // of the next step
      const int next = unit + kStepUnits + u;
      if (next < m.units) raw_[u].load(m, scales_, entry(next).group);
    }
    const std::uint32_t first = shared_address(rows);
    begin_products();
    multiply_rows(sums_, a_[kBuffer][0][0], row_operand(first), step > 0);
    multiply_rows(sums_, a_[kBuffer][0][1], row_operand(first + 32), true);
    multiply_rows(sums_, a_[kBuffer][1][0], row_operand(first + 64), true);
    multiply_rows(sums_, a_[kBuffer][1][1], row_operand(first + 96), true);
    commit_products();
    wait_products<1>();
    keep(a_[kBuffer ^ 1]);
    if (is_pending_) release();
    is_pending_ = true;
    stage_.next(launch_.stages);
  }

  __device__ __forceinline__ void decode(int bits, const std::byte* unit,
                                         std::uint32_t (&a)[2][4]) const {
    with_unit_codes(bits, [&]<class Codes>(Codes codes) {
      codes.load(unit, lane_index());
#pragma unroll
      for (int s = 0; s < 2; ++s)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int h = c % 2;
          const bool low = s == 0 || raised_by<Codes>(s) == kLowBase;
          const __half2 zero = low ? unit_scales_.low[h] : unit_scales_.high[h];
          const __half2 value =
              __hmul2(__hsub2(raised_pair(codes, h, c / 2, s), zero), unit_scales_.scale[h]);
          a[s][c] = *reinterpret_cast<const std::uint32_t*>(&value);
        }
    });
  }

  __device__ __forceinline__ static void clear(std::uint32_t (&a)[2][4]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = 0;
  }

  // Registers of products that may have been under way until here.
  __device__ __forceinline__ static void keep(std::uint32_t (&a)[kStepUnits][2][4]) {
#pragma unroll
    for (int i = 0; i < kStepUnits * 8; ++i) {
      asm volatile("" : "+r"(a[i / 8][i / 4 % 2][i % 4])::"memory");
    }
  }

  // The place of the step before has been read.
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (lane_index() == 0) barrier_arrive(&barriers_.used[read_]);
    if (++read_ == launch_.stages) read_ = 0;
  }

  __device__ __forceinline__ void store(const Tile& tile, float alpha) {
    const int strip = tile.first_strip + warp_;
    const TileMatrix& m = launch_.args.matrices[tile.matrix];
    if (strip >= m.view.strips) return;
    if constexpr (kHalves) {
      store_halves(m, tile.first_row, strip * kStripColumns, alpha);
    } else {
      store_floats(m, tile.first_row, strip * kStripColumns + lane_index() / 4, alpha);
    }
  }

  // A lane has rows 8n + 2t + e, columns g and 8 + g.
  __device__ __forceinline__ void store_floats(const TileMatrix& m, int first_row, int column,
                                               float alpha) {
    const int row = first_row + lane_index() % 4 * 2;
    float* to = static_cast<float*>(m.out) + row * m.out_stride + column;
    const int rows = static_cast<int>(launch_.args.tokens) - row;
    const bool columns[2] = {column < m.view.out, column + 8 < m.view.out};
#pragma unroll
    for (int n = 0; n < kTileRows / 8; ++n) {
      float before[4] = {};
      if (launch_.args.accumulate) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (8 * n + c % 2 < rows && columns[c / 2]) {
            before[c] = to[(8 * n + c % 2) * m.out_stride + c / 2 * 8];
          }
        }
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (8 * n + c % 2 < rows && columns[c / 2]) {
          to[(8 * n + c % 2) * m.out_stride + c / 2 * 8] = before[c] + alpha * sums_[4 * n + c];
        }
      }
    }
  }

  // Eight rows at a time change places with columns, so that a lane has four columns of row
  // 8n + lane / 4 side by side.
  __device__ __forceinline__ void store_halves(const TileMatrix& m, int first_row, int first_column,
                                               float alpha) {
    const int lane = lane_index();
    const bool odd = lane % 2 != 0;
    const int row = first_row + lane / 4;
    const int column = first_column + lane % 4 / 2 * 4 + (odd ? 8 : 0);
    __half* to = static_cast<__half*>(m.out) + row * m.out_stride + column;
    const int rows = static_cast<int>(launch_.args.tokens) - row;
#pragma unroll
    for (int n = 0; n < kTileRows / 8; ++n) {
      std::uint32_t pairs[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const __half2 value =
            __floats2half2_rn(alpha * sums_[4 * n + 2 * h], alpha * sums_[4 * n + 2 * h + 1]);
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
                     : "=r"(pairs[h])
                     : "r"(*reinterpret_cast<const std::uint32_t*>(&value)));
      }
      const std::uint32_t other = __shfl_xor_sync(kAllLanes, odd ? pairs[0] : pairs[1], 1);
      const uint2 four = odd ? uint2{other, pairs[1]} : uint2{pairs[0], other};
      if (8 * n < rows) *reinterpret_cast<uint2*>(to + 8 * n * m.out_stride) = four;
    }
  }

  const Launch& launch_;
  std::byte* memory_;
  Barriers& barriers_;
  int warp_;  // of those that multiply
  int matrix_ = 0;
  const UnitEntry* table_ = nullptr;
  const std::byte* scales_ = nullptr;  // of the warp's strip
  RawScales<kGptq> raw_[kStepUnits];   // of the next units
  UnitScales unit_scales_;
  Stage stage_;
  int read_ = 0;             // the place that is given back next
  bool is_pending_ = false;  // products of a step are under way
  std::uint32_t a_[2][kStepUnits][2][4];
  float sums_[kTileRows / 2];
};

// All threads.
__device__ __forceinline__ void make_tables(const Launch& launch, std::byte* memory) {
  auto* table = reinterpret_cast<UnitEntry*>(memory + launch.tables_at);
  for (int i = 0; i < launch.args.count; ++i) {
    const CodeMatrixView& m = launch.args.matrices[i].view;
    for (auto c = static_cast<int>(threadIdx.x); c < m.chunk_count; c += kThreads) {
      const Chunk chunk = m.chunks[c];
      const bool goes_on = c > 0 && m.chunks[c - 1].group == chunk.group;
      for (int u = 0; u < chunk.units; ++u) {
        UnitEntry entry{};
        entry.offset = chunk.offset + static_cast<std::uint32_t>(u * chunk.bits);
        entry.group_scale = chunk.group_scale;
        entry.group = chunk.group;
        entry.bits = chunk.bits;
        entry.begins_group = u == 0 && !goes_on ? 1 : 0;
        table[chunk.first_unit + u] = entry;
      }
    }
    if (threadIdx.x == 0) table[m.units].offset = static_cast<std::uint32_t>(m.strip_bytes / 64);
    table += m.units + 1;
  }
}

#endif

template <bool kGptq, bool kHalves>
__global__ void __launch_bounds__(kThreads, 1)
    tile_product_kernel(const __grid_constant__ Launch launch,
                        const __grid_constant__ CUtensorMap rows) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  allow_next();
  extern __shared__ std::byte raw[];
  __shared__ Barriers barriers;
  std::byte* memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
  if (threadIdx.x == 0) {
    for (int i = 0; i < launch.stages; ++i) {
      barrier_init(&barriers.there[i], 1);
      barrier_init(&barriers.used[i], kConsumerWarps);
    }
    barrier_init_fence();
  }
  make_tables(launch, memory);
  __syncthreads();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x < 32) fetch(launch, rows, memory, barriers);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    dependency_wait();
    TileMultiplier<kGptq, kHalves>(launch, memory, barriers).run();
  }
#endif
}

using TileKernel = void (*)(Launch, CUtensorMap);

TileKernel kernel_of(bool gptq, bool halves) {
  if (gptq) return halves ? tile_product_kernel<true, true> : tile_product_kernel<true, false>;
  return halves ? tile_product_kernel<false, true> : tile_product_kernel<false, false>;
}

constexpr int kAlignment = 1024;  // of rows in shared memory

// Tiles, steps and shared memory, whose bytes it returns; 0: it does not fit.
int lay_out(const TileProductArgs& args, int room, Launch& launch) {
  const int units = args.matrices[0].view.units;
  int widest = 0;
  int tiles = 0;
  for (int i = 0; i < args.count; ++i) {
    launch.first_tiles[i] = tiles;
    tiles += (args.matrices[i].view.strips + kTileStrips - 1) / kTileStrips;
    widest = std::max(widest, args.matrices[i].widest);
  }
  launch.first_tiles[args.count] = tiles;
  launch.row_tiles = static_cast<int>((args.tokens + kTileRows - 1) / kTileRows);
  launch.steps = (units + kStepUnits - 1) / kStepUnits;
  launch.strip_room = kStepUnits * unit_bytes(widest);
  const int codes = kTileStrips * launch.strip_room;
  launch.stage_bytes = kRowsBytes + (codes + kAlignment - 1) / kAlignment * kAlignment;
  const int tables = args.count * (units + 1) * static_cast<int>(sizeof(UnitEntry));
  launch.stages = std::min(kMostStages, (room - kAlignment - tables) / launch.stage_bytes);
  launch.tables_at = launch.stages * launch.stage_bytes;
  return launch.stages < 2 ? 0 : launch.tables_at + tables + kAlignment;
}

int dynamic_room(const DeviceFacts& facts) {
  return static_cast<int>(facts.shared_bytes_per_cta) - static_cast<int>(sizeof(Barriers));
}

}  // namespace

bool has_tile_product(const DeviceFacts& facts) { return facts.compute_capability == 90; }

bool takes_tile_product(const DeviceFacts& facts, const TileProductArgs& args) {
  Launch launch;
  if (args.count == 0 || lay_out(args, dynamic_room(facts), launch) == 0) return false;
  const auto is_aligned = [](const void* p, std::uintptr_t bytes) {
    return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
  };
  const auto is_usual = [&](const TileMatrix& m) {
    return m.view.units == args.matrices[0].view.units &&
           (m.view.kind == ScaleKind::kExl2) == (args.matrices[0].view.kind == ScaleKind::kExl2) &&
           (!args.halves ||
            (m.view.out % kStripColumns == 0 && m.out_stride % 4 == 0 && is_aligned(m.out, 8)));
  };
  return is_aligned(args.rows, 16) &&
         std::all_of(args.matrices, args.matrices + args.count, is_usual);
}

void tile_product(ExecContext& ctx, const TileProductArgs& args) {
  const DeviceFacts& facts = cuda_ops_of(ctx).backend->facts();
  Launch launch_args;
  launch_args.args = args;
  const int bytes = lay_out(args, dynamic_room(facts), launch_args);
  BL_CHECK(bytes > 0);
  const int slots = args.matrices[0].view.units * kUnitSlots;
  const CUtensorMap rows =
      half_rows_map(reinterpret_cast<const std::byte*>(args.rows), slots, args.tokens, kTileRows);
  const int tiles = launch_args.first_tiles[args.count] * launch_args.row_tiles;
  const int ctas = std::min(tiles, facts.multiprocessors);
  const TileKernel kernel = kernel_of(args.matrices[0].view.kind != ScaleKind::kExl2, args.halves);
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  launch(
      shape_of(ctx, dim3(static_cast<unsigned>(ctas)), kThreads, static_cast<std::size_t>(bytes)),
      kernel, launch_args, rows);
}

}  // namespace bl::cuda
