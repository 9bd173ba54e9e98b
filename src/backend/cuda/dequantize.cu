#include "backend/cuda/dequantize.h"

#include "backend/cuda/code_product.cuh"
#include "backend/cuda/launch.cuh"

namespace bl::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kSlots = kWarps * kUnitSlots;  // of a CTA's tile
constexpr int kPadding = 8;                  // halves between rows, against bank conflicts

// Integers of a pair, as two halves 1024 + code.
__device__ __forceinline__ __half2 with_magic(std::uint32_t pair) {
  const std::uint32_t bits = pair | 0x64006400u;
  return *reinterpret_cast<const __half2*>(&bits);
}

// Writes a unit's values into the CTA's tile: `tile` is [64][kSlots + kPadding], at the unit's
// first slot. `pair_of(i, h, r, s)` gives two codes, each in the low bits of its half.
template <class Pair>
__device__ __forceinline__ void write_unit(Pair&& pair_of, const LaneScales& scales, int lane,
                                           __half* tile) {
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const __half2 scale = __float2half2_rn(scales.scale[2 * i + h] * kCodeUnit);
      const __half2 zero = __float2half2_rn(1024.0f + scales.zero[2 * i + h]);
      __half* row = tile + (16 * i + 8 * h + g) * (kSlots + kPadding) + 2 * t;
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          // The difference is exact, so the product is the one rounding that the formats ask for.
          const __half2 value = __hmul2(__hsub2(with_magic(pair_of(i, h, r, s)), zero), scale);
          *reinterpret_cast<__half2*>(row + 16 * s + 8 * r) = value;
        }
      }
    }
  }
}

template <int Bits>
__device__ __forceinline__ void write_codes(const std::byte* codes, const LaneScales& scales,
                                            int lane, __half* tile) {
  UnitCodes<Bits> unit;
  unit.load(codes, lane);
  write_unit([&](int i, int h, int r, int s) { return unit.pair(i, h, r, s) >> (4 * s); }, scales,
             lane, tile);
}

__device__ __forceinline__ void write_wide_codes(const std::byte* codes, const LaneScales& scales,
                                                 int lane, __half* tile) {
  UnitCodes<4> high;
  UnitCodes<4> low;
  high.load(codes, lane);
  low.load(codes + 1024, lane);
  write_unit(
      [&](int i, int h, int r, int s) {
        return low.pair(i, h, r, s) >> (4 * s) | high.pair(i, h, r, s) >> (4 * s) << 4;
      },
      scales, lane, tile);
}

// The chunk that holds a unit.
__device__ __forceinline__ int chunk_of_unit(const CodeMatrixView& m, int unit, int lane) {
  int chunk = -1;
  for (int base = 0; base < m.chunk_count; base += 32) {
    const bool reached = base + lane < m.chunk_count && m.chunks[base + lane].first_unit <= unit;
    chunk += __popc(__ballot_sync(0xffffffffu, reached));
  }
  return chunk;
}

// grid (pieces of four units, strips): a warp a unit.
__global__ void __launch_bounds__(kWarps * 32) dequantize_kernel(DequantizeArgs args) {
  allow_next();
  __shared__ __align__(16) __half tile[kStripColumns][kSlots + kPadding];
  const CodeMatrixView& m = args.view;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int strip = args.first_strip + static_cast<int>(blockIdx.y);
  const int first_unit = static_cast<int>(blockIdx.x) * kWarps;
  const int unit = first_unit + warp;
  if (unit < m.units) {
    const Chunk chunk = m.chunks[chunk_of_unit(m, unit, lane)];
    const std::byte* codes = m.codes + strip * m.strip_bytes +
                             static_cast<std::int64_t>(chunk.offset) * 256 +
                             (unit - static_cast<int>(chunk.first_unit)) * unit_bytes(chunk.bits);
    const std::byte* scales_at =
        m.scales +
        (static_cast<std::int64_t>(strip) * m.groups + chunk.group) * scale_bytes(m.kind);
    LaneScales scales;
    scales.load(m, scales_at, chunk, lane);
    __half* to = &tile[0][warp * kUnitSlots];
    switch (chunk.bits) {
      case 2:
        write_codes<2>(codes, scales, lane, to);
        break;
      case 3:
        write_codes<3>(codes, scales, lane, to);
        break;
      case 4:
        write_codes<4>(codes, scales, lane, to);
        break;
      case 5:
        write_codes<5>(codes, scales, lane, to);
        break;
      case 6:
        write_codes<6>(codes, scales, lane, to);
        break;
      default:
        write_wide_codes(codes, scales, lane, to);
    }
  }
  __syncthreads();
  // The product before may still read the rows.
  dependency_wait();
  const int slots = min(kSlots, (m.units - first_unit) * kUnitSlots);
  const std::int64_t row_length = std::int64_t{m.units} * kUnitSlots;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kStripColumns;
  for (int e = static_cast<int>(threadIdx.x); e < kStripColumns * kSlots / 8; e += kWarps * 32) {
    const int column = e / (kSlots / 8);
    const int slot = e % (kSlots / 8) * 8;
    if (slot >= slots) continue;
    __half* row = args.rows + (first_row + column) * row_length + first_unit * kUnitSlots;
    *reinterpret_cast<uint4*>(row + slot) = *reinterpret_cast<const uint4*>(&tile[column][slot]);
  }
}

}  // namespace

void dequantize(ExecContext& ctx, const DequantizeArgs& args) {
  const dim3 grid(static_cast<unsigned>((args.view.units + kWarps - 1) / kWarps),
                  static_cast<unsigned>(args.strips));
  launch(shape_of(ctx, grid, kWarps * 32), dequantize_kernel, args);
}

}  // namespace bl::cuda
