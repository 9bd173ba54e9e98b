#include "backend/cuda/product/tile_product.h"

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/cluster.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/tensor_map.h"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/device/wgmma.cuh"
#include "backend/cuda/product/tile_codes.cuh"
#include "base/check.h"

// A CTA stays on its multiprocessor and goes from tile to tile, 128 columns of a matrix × 256 rows
// each, in steps of 64 slots. Of its first warpgroup one warp asks for the rows that the next steps
// need, one for their codes; two make scales, a unit of a step each. Two CTAs are a cluster: their
// tiles are of the same rows, of which each asks for half, for both. The other two warpgroups have
// 64 columns each, a strip a warp: columns are the rows of the tensor cores' operand A, which is
// decoded in registers while the products of the step before run.

namespace bl::cuda {
namespace {

constexpr int kConsumers = 2;  // warpgroups that multiply
constexpr int kConsumerWarps = 4 * kConsumers;
static_assert(kTileStrips == kConsumerWarps);
constexpr int kTileRows = 256;
// Of a step: the 128 bytes of a row that the copy engine swizzles over.
constexpr int kRowsBytes = kTileRows * kStepUnits * kUnitSlots * 2;
constexpr int kAlignment = 1024;  // of rows in shared memory
constexpr int kThreads = 128 * (1 + kConsumers);
constexpr int kMostStages = 6;
constexpr int kCluster = 2;  // CTAs

struct Launch {
  TileProductArgs args;
  int first_tiles[kMaxMatrices + 1] = {};  // of columns; the last: of all
  int row_tiles = 0;
  int cluster_tiles = 0;  // of all clusters
  int steps = 0;
  int stages = 0;
  int strip_room = 0;                 // bytes of a strip's codes of a step
  int scales_at = 0;                  // of both units, behind rows and codes of all strips
  int stage_bytes = 0;                // of all that
  std::uint32_t low_bits = kLowBits;  // see StepDecoder
  std::uint32_t high_bits = kHighBits;
  int tables_at = 0;  // in shared memory, UnitTables of the matrices
};

struct Barriers {
  std::uint64_t there[kMostStages];
  std::uint64_t used[kMostStages];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ int cta_of_cluster() { return static_cast<int>(blockIdx.x) % kCluster; }

// A CTA's tile, and where its parts come from.
struct Tile {
  int matrix;
  int first_strip;  // behind the last where there is no tile for this CTA
  int first_row;

  // `number`: of the cluster's tiles.
  __device__ __forceinline__ Tile(const Launch& launch, int number) {
    const int column_tile = number / launch.row_tiles * kCluster + cta_of_cluster();
    first_row = number % launch.row_tiles * kTileRows;
    matrix = 0;
#pragma unroll
    for (int i = 1; i < kMaxMatrices; ++i) {
      if (i < launch.args.count && column_tile >= launch.first_tiles[i]) matrix = i;
    }
    first_strip = (column_tile - launch.first_tiles[matrix]) * kTileStrips;
  }
};

// f(tile) for all of the CTA's.
template <class F>
__device__ __forceinline__ void for_each_tile(const Launch& launch, const F& f) {
  const int first = static_cast<int>(blockIdx.x) / kCluster;
  const int step = static_cast<int>(gridDim.x) / kCluster;
  for (int number = first; number < launch.cluster_tiles; number += step) f(Tile(launch, number));
}

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

__device__ __forceinline__ UnitTable table_of(const Launch& launch, const std::byte* memory,
                                              int matrix) {
  const int units = launch.args.matrices[0].view.units;
  return {memory + launch.tables_at + matrix * UnitTable::bytes(units), units};
}

// The warp that asks for rows.
__device__ __forceinline__ void fetch_rows(const Launch& launch, const CUtensorMap& rows,
                                           std::byte* memory, Barriers& barriers) {
  if (lane_index() != 0) return;
  constexpr int kOwnRows = kTileRows / kCluster;
  const int own = cta_of_cluster();
  std::byte* to = memory + own * (kRowsBytes / kCluster);
  Stage stage;
  dependency_wait();
  for_each_tile(launch, [&](const Tile& tile) {
    for (int step = 0; step < launch.steps; ++step) {
      std::uint64_t* there = &barriers.there[stage.index];
      barrier_wait(&barriers.used[stage.index], stage.phase ^ 1u);
      barrier_expect(there, kRowsBytes);
      tensor_copy_to_all(to + stage.index * launch.stage_bytes, &rows,
                         {step * kStepUnits * kUnitSlots, tile.first_row + own * kOwnRows}, there,
                         (1u << kCluster) - 1);
      stage.next(launch.stages);
    }
  });
}

// The warp that asks for codes: every strip's are brought by four lanes. That is some 50
// instructions a step, where a bulk copy a strip was 360, which all else waited for.
__device__ __forceinline__ void fetch_codes(const Launch& launch, std::byte* memory,
                                            Barriers& barriers) {
  constexpr int kLanes = 32 / kTileStrips;  // of a strip
  const int strip = lane_index() / kLanes;
  const int first = lane_index() % kLanes * 16;
  std::byte* to = memory + kRowsBytes + strip * launch.strip_room + first;
  Stage stage;
  for_each_tile(launch, [&](const Tile& tile) {
    const CodeMatrixView& m = launch.args.matrices[tile.matrix].view;
    const UnitTable table = table_of(launch, memory, tile.matrix);
    // Warps without a strip multiply what the last one's have.
    const std::byte* codes =
        m.codes + min(tile.first_strip + strip, m.strips - 1) * m.strip_bytes + first;
    std::uint32_t from = table.entries[0].offset * 64;
    for (int step = 0; step < launch.steps; ++step) {
      const std::uint32_t end = table.entries[(step + 1) * kStepUnits].offset * 64;
      std::byte* place = to + stage.index * launch.stage_bytes;
      barrier_wait(&barriers.used[stage.index], stage.phase ^ 1u);
#pragma unroll 4
      for (; from < end; from += kLanes * 16) {
        copy_small(place, codes + from);
        place += kLanes * 16;
      }
      barrier_arrive_behind_copies(&barriers.there[stage.index]);
      stage.next(launch.stages);
    }
  });
}

// The warp that makes scales of unit `u` of each step.
template <bool kGptq>
__device__ __forceinline__ void make_scales(const Launch& launch, std::byte* memory,
                                            Barriers& barriers, int u) {
  Stage stage;
  ScaleMaker<kGptq> maker;
  for_each_tile(launch, [&](const Tile& tile) {
    const UnitTable table = table_of(launch, memory, tile.matrix);
    maker.open(launch.args.matrices[tile.matrix].view, tile.first_strip);
    int group = table.entries[u].group;
    maker.load(group);
    for (int step = 0; step < launch.steps; ++step) {
      const UnitEntry unit = table.entries[step * kStepUnits + u];
      auto* to = reinterpret_cast<TileScales<kGptq>*>(memory + stage.index * launch.stage_bytes +
                                                      launch.scales_at);
      barrier_wait(&barriers.used[stage.index], stage.phase ^ 1u);
      if (unit.bits != 0) maker.make(unit, to[u]);
      barrier_arrive(&barriers.there[stage.index]);
      const int next = table.entries[(step + 1) * kStepUnits + u].group;
      if (next != group) maker.load(next);
      group = next;
      stage.next(launch.stages);
    }
  });
}

// *to += values, by the second level of the cache: nobody waits for what is there.
__device__ __forceinline__ void add_at(float4* to, const float4& values) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(values.x),
               "f"(values.y), "f"(values.z), "f"(values.w)
               : "memory");
}

template <bool kGptq, bool kHalves>
class TileMultiplier {
 public:
  // `memory`, `barriers`: as counted_from() gives them.
  __device__ __forceinline__ TileMultiplier(const Launch& launch, std::byte* memory,
                                            Barriers& barriers)
      : launch_(launch),
        memory_(memory),
        barriers_(barriers),
        lane_(kept(lane_index())),
        steps_(kept(launch.steps)),
        stages_(kept(launch.stages)),
        stage_bytes_(kept(launch.stage_bytes)),
        codes_at_(kept(kRowsBytes + (warp_index() - 4) * launch.strip_room)),
        scales_at_(kept(launch.scales_at)),
        decoder_(warp_index() - 4, lane_, launch.low_bits, launch.high_bits) {}

  __device__ __forceinline__ void run() {
    const float alpha = *launch_.args.alpha;
    for_each_tile(launch_, [&](const Tile& tile) {
      widths_ = table_of(launch_, memory_, tile.matrix).widths;
      next_widths_ = widths_[0];
      for (int step = 0; step < steps_; step += 2) {
        multiply<0>(step);
        if (step + 1 < steps_) multiply<1>(step + 1);
      }
      wait_products<0>();
      settle(sums_);
      release(true);
      store(tile, alpha);
    });
  }

 private:
  // In a register: compilers read constants and the lane's number again at every step.
  __device__ __forceinline__ static int kept(int value) {
    asm volatile("" : "+r"(value));
    return value;
  }

  // Begins the products of a step, and ends those of the step before. kBuffer: step % 2. Warps
  // without a strip do as if: their rows of the product are not written.
  template <int kBuffer>
  __device__ __forceinline__ void multiply(int step) {
    const std::uint32_t widths = next_widths_;
    next_widths_ = widths_[step + 1];
    const std::byte* rows = memory_ + stage_.index * stage_bytes_;
    // The same in all lanes, and known to be: operands in shared memory are in uniform registers.
    const std::uint32_t first = __shfl_sync(kAllLanes, shared_address(rows), 0);
    barrier_wait(&barriers_.there[stage_.index], stage_.phase);
    decoder_.decode(widths, rows + codes_at_, rows + scales_at_, a_[kBuffer]);
    begin_products();
    const std::uint64_t operand = row_operand(first);
    constexpr std::uint64_t kNext = 32 >> 4;  // 16 slots further
    multiply_rows(sums_, a_[kBuffer][0][0], operand, step > 0);
    multiply_rows(sums_, a_[kBuffer][0][1], operand + kNext, true);
    multiply_rows(sums_, a_[kBuffer][1][0], operand + 2 * kNext, true);
    multiply_rows(sums_, a_[kBuffer][1][1], operand + 3 * kNext, true);
    commit_products();
    wait_products<1>();
    keep(a_[kBuffer ^ 1]);
    release(step > 0);
    stage_.next(stages_);
  }

  // Registers of products that may have been under way until here.
  __device__ __forceinline__ static void keep(StepOperands& a) {
#pragma unroll
    for (int i = 0; i < kStepUnits * 8; ++i) {
      asm volatile("" : "+r"(a[i / 8][i / 4 % 2][i % 4])::"memory");
    }
  }

  // The place of the step before, if there is one, has been read: all whose copies come there are
  // told.
  __device__ __forceinline__ void release(bool is_one) {
    if (!is_one) return;
    __syncwarp();
    if (lane_ < kCluster) barrier_arrive_at(&barriers_.used[read_], lane_);
    if (++read_ == stages_) read_ = 0;
  }

  __device__ __forceinline__ void store(const Tile& tile, float alpha) {
    const int strip = tile.first_strip + warp_index() - 4;
    const TileMatrix& m = launch_.args.matrices[tile.matrix];
    if (strip >= m.view.strips) return;
    const int column = strip * kStripColumns;
    if constexpr (kHalves) {
      store_halves(m, tile.first_row, column, alpha);
    } else {
      store_floats(m, tile.first_row, column, alpha);
    }
  }

  // As store_halves(). What is added to is not loaded: every element is added to once, so that
  // sums are the same in any order.
  __device__ __forceinline__ void store_floats(const TileMatrix& m, int first_row, int first_column,
                                               float alpha) {
    const int lane = lane_index();
    const bool odd = lane % 2 != 0;
    const int row = first_row + lane / 4;
    const int column = first_column + lane % 4 / 2 * 4 + (odd ? 8 : 0);
    float* to = static_cast<float*>(m.out) + row * m.out_stride + column;
    const int rows = column < m.view.out ? static_cast<int>(launch_.args.tokens) - row : 0;
#pragma unroll
    for (int n = 0; n < kTileRows / 8; ++n) {
      float2 pairs[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float* sums = sums_ + 4 * n + 2 * h;
        pairs[h] = transposed(alpha * sums[0], alpha * sums[1]);
      }
      const float2 given = odd ? float2{pairs[0]} : float2{pairs[1]};
      const float2 other = {__shfl_xor_sync(kAllLanes, given.x, 1),
                            __shfl_xor_sync(kAllLanes, given.y, 1)};
      const float4 four = odd ? float4{other.x, other.y, pairs[1].x, pairs[1].y}
                              : float4{pairs[0].x, pairs[0].y, other.x, other.y};
      if (8 * n >= rows) continue;
      auto* place = reinterpret_cast<float4*>(to + 8 * n * m.out_stride);
      if (launch_.args.accumulate) {
        add_at(place, four);
      } else {
        *place = four;
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
        const float* sums = sums_ + 4 * n + 2 * h;
        pairs[h] = transposed(pack_halves(alpha * sums[0], alpha * sums[1]));
      }
      const std::uint32_t other = __shfl_xor_sync(kAllLanes, odd ? pairs[0] : pairs[1], 1);
      const uint2 four = odd ? uint2{other, pairs[1]} : uint2{pairs[0], other};
      if (8 * n < rows) *reinterpret_cast<uint2*>(to + 8 * n * m.out_stride) = four;
    }
  }

  const Launch& launch_;
  std::byte* memory_;
  Barriers& barriers_;
  int lane_;
  int steps_;
  int stages_;
  int stage_bytes_;
  int codes_at_;  // of the warp's strip, in a stage
  int scales_at_;
  StepDecoder<kGptq> decoder_;
  const std::uint16_t* widths_ = nullptr;
  std::uint32_t next_widths_ = 0;
  Stage stage_;
  int read_ = 0;  // the place that is given back next
  StepOperands a_[2];
  float sums_[kTileRows / 2];
};

#endif

template <bool kGptq, bool kHalves>
__global__ void __launch_bounds__(kThreads, 1)
    tile_product_kernel(const __grid_constant__ Launch launch,
                        const __grid_constant__ CUtensorMap rows) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  allow_next();
  extern __shared__ std::byte raw[];
  __shared__ Barriers barriers;
  std::byte* memory =
      counted_from(raw + (kAlignment - shared_address(raw) % kAlignment) % kAlignment);
  if (threadIdx.x == 0) {
    for (int i = 0; i < launch.stages; ++i) {
      // Rows, lanes' copies of codes, and scales.
      barrier_init(&barriers.there[i], 1 + 32 + kStepUnits * 32);
      barrier_init(&barriers.used[i], kCluster * kConsumerWarps);
    }
    barrier_init_fence();
  }
  for (int i = 0; i < launch.args.count; ++i) {
    const CodeMatrixView& m = launch.args.matrices[i].view;
    make_unit_table(m, kThreads, memory + launch.tables_at + i * UnitTable::bytes(m.units));
  }
  cluster_arrive();
  cluster_wait();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    const int warp = warp_index();
    if (warp == 0) {
      fetch_rows(launch, rows, memory, barriers);
    } else if (warp == 1) {
      fetch_codes(launch, memory, barriers);
    } else {
      make_scales<kGptq>(launch, memory, barriers, warp - 2);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    dependency_wait();
    TileMultiplier<kGptq, kHalves>(launch, memory, barriers).run();
  }
  // Nobody leaves while another may write or arrive here.
  __syncwarp();
  cluster_arrive();
  cluster_wait();
#endif
}

using TileKernel = void (*)(Launch, CUtensorMap);

TileKernel kernel_of(bool gptq, bool halves) {
  if (gptq) return halves ? tile_product_kernel<true, true> : tile_product_kernel<true, false>;
  return halves ? tile_product_kernel<false, true> : tile_product_kernel<false, false>;
}

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
  launch.cluster_tiles = (tiles + kCluster - 1) / kCluster * launch.row_tiles;
  launch.steps = (units + kStepUnits - 1) / kStepUnits;
  launch.strip_room = kStepUnits * unit_bytes(widest);
  const int codes = kTileStrips * launch.strip_room;
  const bool gptq = args.matrices[0].view.kind != ScaleKind::kExl2;
  const std::size_t scales = gptq ? sizeof(TileScales<true>) : sizeof(TileScales<false>);
  launch.scales_at = kRowsBytes + codes;
  const int stage = launch.scales_at + kStepUnits * static_cast<int>(scales);
  launch.stage_bytes = (stage + kAlignment - 1) / kAlignment * kAlignment;
  const int tables = args.count * UnitTable::bytes(units);
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
           m.view.out % (args.halves ? kStripColumns : 4) == 0 && m.out_stride % 4 == 0 &&
           is_aligned(m.out, args.halves ? 8 : 16);
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
  const CUtensorMap rows = half_rows_map(reinterpret_cast<const std::byte*>(args.rows), slots,
                                         args.tokens, kTileRows / kCluster);
  const int clusters = std::min(launch_args.cluster_tiles, facts.multiprocessors / kCluster);
  const TileKernel kernel = kernel_of(args.matrices[0].view.kind != ScaleKind::kExl2, args.halves);
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  LaunchShape shape = shape_of(ctx, dim3(static_cast<unsigned>(clusters * kCluster)), kThreads,
                               static_cast<std::size_t>(bytes));
  shape.cluster = kCluster;
  launch(shape, kernel, launch_args, rows);
}

}  // namespace bl::cuda
