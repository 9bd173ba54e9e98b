#include "backend/cuda/gemm/large/dequantize.h"

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/layout/code_values.cuh"

namespace bl::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kCtaNTiles = 4;
constexpr int kColumns = kCtaNTiles * kNTileColumns;  // of a CTA's tile
constexpr int kTileK = kWarps * kKStepSize;
constexpr int kPadding = 8;  // halves between rows, against bank conflicts
constexpr int kRow = kTileK + kPadding;

// Writes a k_step of one n_tile. `tile` is [16][kRow], at the k_step's first element.
template <class Codes>
__device__ __forceinline__ void write_k_step(const Codes& codes, const LaneScales& scales, int lane,
                                             __half* tile) {
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const __half2 scale = __float2half2_rn(scales.scale[h]);
    __half* row = tile + (8 * h + g) * kRow + 2 * t;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const __half2 zero = __float2half2_rn(magic_base<Codes>(s) + scales.zero[h]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const __half2 value = dequant_pair(magic_pair(codes, h, r, s), zero, scale);
        *reinterpret_cast<__half2*>(row + 16 * s + 8 * r) = value;
      }
    }
  }
}

// One k_step of a few n_tiles.
struct NTileKSteps {
  const std::byte* codes = nullptr;  // of the first n_tile
  std::int64_t stride = 0;
  const std::byte* scales = nullptr;  // of the k_step's group, of the first n_tile
  std::int64_t scale_stride = 0;
  int n_tiles = 0;
};

// Loads codes and scales of all n_tiles before it uses the first.
template <class Codes, class Scales>
__device__ __forceinline__ void write_k_steps(const CodeMatrixView& m, const KBlock& k_block,
                                              const NTileKSteps& k_steps, __half* tile) {
  const int lane = lane_index();
  Codes codes[kCtaNTiles];
#pragma unroll
  for (int i = 0; i < kCtaNTiles; ++i) {
    if (i < k_steps.n_tiles) codes[i].load(k_steps.codes + i * k_steps.stride, lane);
  }
  const Scales scales(m, k_block, lane, 1.0f);
  LaneScales of_n_tile[kCtaNTiles];
#pragma unroll
  for (int i = 0; i < kCtaNTiles; ++i) {
    if (i < k_steps.n_tiles)
      of_n_tile[i] = scales.of(k_steps.scales + i * k_steps.scale_stride, lane);
  }
#pragma unroll
  for (int i = 0; i < kCtaNTiles; ++i) {
    if (i >= k_steps.n_tiles) break;
    write_k_step(codes[i], of_n_tile[i], lane, tile + i * kNTileColumns * kRow);
  }
}

// Returns the k_block that holds a k_step.
__device__ __forceinline__ int k_block_of_step(const CodeMatrixView& m, int k_step, int lane) {
  // Groups of 128 are the rule: try that k_block before searching the table.
  const int usual = min(k_step / kMaxKBlockSteps, m.k_block_count - 1);
  const KBlock& guess = m.k_blocks[usual];
  if (guess.first_k_step <= k_step && k_step < guess.first_k_step + guess.k_steps) return usual;
  // A few loads in flight at once: with groups of 32 the table is long.
  constexpr int kAtOnce = 4;
  int k_block = -1;
#pragma unroll 1
  for (int base = 0; base < m.k_block_count; base += 32 * kAtOnce) {
    int first[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = base + 32 * i + lane;
      first[i] = at < m.k_block_count ? int{m.k_blocks[at].first_k_step} : m.k_steps;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      k_block += __popc(__ballot_sync(kAllLanes, first[i] <= k_step));
    }
  }
  return k_block;
}

// Dequantizes one k_step of up to four n_tiles with one warp, into the CTA's tile.
template <class Scales>
__device__ __forceinline__ void expand_k_step(const CodeMatrixView& m, int first_n_tile,
                                              int n_tiles, int k_step, __half* tile) {
  const KBlock k_block = m.k_blocks[k_block_of_step(m, k_step, lane_index())];
  const std::int64_t stride = scale_stride(m.kind, m.groups);
  const NTileKSteps k_steps{
      m.codes + first_n_tile * m.n_tile_bytes +
          static_cast<std::int64_t>(k_block.offset) * k_step_bytes(1) +
          (k_step - static_cast<int>(k_block.first_k_step)) * k_step_bytes(k_block.bits),
      m.n_tile_bytes, m.scales + first_n_tile * stride + k_block.group * scale_bytes(m.kind),
      stride, n_tiles};
  with_width(k_block.bits, [&]<int kBits>(std::integral_constant<int, kBits>) {
    write_k_steps<CodesOf<kBits>, Scales>(m, k_block, k_steps, tile);
  });
}

constexpr int kRowEights = kTileK / 8;                   // threads that store a column
constexpr int kStoredAtOnce = kWarps * 32 / kRowEights;  // columns

// Stores this thread's eight elements of every kStoredAtOnce-th of `Columns` columns.
template <int Columns>
__device__ __forceinline__ void store_columns(const __half* tile, __half* row,
                                              std::int64_t row_length) {
#pragma unroll
  for (int i = 0; i < Columns / kStoredAtOnce; ++i) {
    *reinterpret_cast<uint4*>(row + i * kStoredAtOnce * row_length) =
        *reinterpret_cast<const uint4*>(tile + i * kStoredAtOnce * kRow);
  }
}

// grid (k_steps / 4, n_tiles / 4): a warp a k_step.
template <class Scales>
__global__ void __launch_bounds__(kWarps * 32) dequantize_kernel(DequantizeArgs args) {
  pdl_trigger();
  __shared__ __align__(16) __half tile[kColumns][kRow];
  const CodeMatrixView& m = args.view;
  const int warp = warp_index();
  const int first_n_tile = static_cast<int>(blockIdx.y) * kCtaNTiles;  // among args.n_tiles
  const int n_tiles = min(kCtaNTiles, args.n_tiles - first_n_tile);
  const int first_k_step = static_cast<int>(blockIdx.x) * kWarps;
  if (first_k_step + warp < m.k_steps) {
    expand_k_step<Scales>(m, args.first_n_tile + first_n_tile, n_tiles, first_k_step + warp,
                          &tile[0][warp * kKStepSize]);
  }
  __syncthreads();
  // The GEMM in front may still read the rows.
  pdl_wait();
  const int k = static_cast<int>(threadIdx.x) % kRowEights * 8;
  if (k >= (m.k_steps - first_k_step) * kKStepSize) return;
  const int column = static_cast<int>(threadIdx.x) / kRowEights;
  const std::int64_t row_length = std::int64_t{m.k_steps} * kKStepSize;
  const std::int64_t first_row = static_cast<std::int64_t>(first_n_tile) * kNTileColumns;
  __half* row = args.rows + (first_row + column) * row_length + first_k_step * kKStepSize + k;
  if (n_tiles == kCtaNTiles) {
    store_columns<kColumns>(&tile[column][k], row, row_length);
  } else {
    for (int n_tile = 0; n_tile < n_tiles; ++n_tile) {
      store_columns<kNTileColumns>(&tile[n_tile * kNTileColumns + column][k],
                                   row + n_tile * kNTileColumns * row_length, row_length);
    }
  }
}

}  // namespace

void dequantize(ExecContext& ctx, const DequantizeArgs& args) {
  const dim3 grid(static_cast<unsigned>((args.view.k_steps + kWarps - 1) / kWarps),
                  static_cast<unsigned>((args.n_tiles + kCtaNTiles - 1) / kCtaNTiles));
  const bool exl2 = args.view.kind == ScaleKind::kExl2;
  launch(shape_of(ctx, grid, kWarps * 32),
         exl2 ? dequantize_kernel<ExlScales> : dequantize_kernel<GptqScales>, args);
}

}  // namespace bl::cuda
