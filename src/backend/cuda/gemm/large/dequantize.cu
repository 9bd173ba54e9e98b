#include "backend/cuda/gemm/large/dequantize.h"

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/layout/code_values.cuh"

namespace bl::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kCtaStrips = 4;
constexpr int kColumns = kCtaStrips * kStripColumns;  // of a CTA's tile
constexpr int kSlots = kWarps * kUnitSlots;
constexpr int kPadding = 8;  // halves between rows, against bank conflicts
constexpr int kRow = kSlots + kPadding;

// Writes one strip's values of a unit: `tile` is [16][kRow], at the unit's first slot.
template <class Codes>
__device__ __forceinline__ void write_unit(const Codes& codes, const LaneScales& scales, int lane,
                                           __half* tile) {
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const __half2 scale = __float2half2_rn(scales.scale[h]);
    __half* row = tile + (8 * h + g) * kRow + 2 * t;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const __half2 zero = __float2half2_rn(raised_by<Codes>(s) + scales.zero[h]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const __half2 value = meant_pair(raised_pair(codes, h, r, s), zero, scale);
        *reinterpret_cast<__half2*>(row + 16 * s + 8 * r) = value;
      }
    }
  }
}

// The same unit of a few strips.
struct StripUnits {
  const std::byte* codes = nullptr;  // of the first strip
  std::int64_t stride = 0;
  const std::byte* scales = nullptr;  // of the unit's group, of the first strip
  std::int64_t scale_stride = 0;
  int strips = 0;
};

// Codes and scales are asked for together.
template <class Codes, class Scales>
__device__ __forceinline__ void write_units(const CodeMatrixView& m, const Chunk& chunk,
                                            const StripUnits& units, __half* tile) {
  const int lane = lane_index();
  Codes codes[kCtaStrips];
#pragma unroll
  for (int i = 0; i < kCtaStrips; ++i) {
    if (i < units.strips) codes[i].load(units.codes + i * units.stride, lane);
  }
  const Scales scales(m, chunk, lane, 1.0f);
  LaneScales of_strip[kCtaStrips];
#pragma unroll
  for (int i = 0; i < kCtaStrips; ++i) {
    if (i < units.strips) of_strip[i] = scales.of(units.scales + i * units.scale_stride, lane);
  }
#pragma unroll
  for (int i = 0; i < kCtaStrips; ++i) {
    if (i >= units.strips) break;
    write_unit(codes[i], of_strip[i], lane, tile + i * kStripColumns * kRow);
  }
}

// The chunk that holds a unit.
__device__ __forceinline__ int chunk_of_unit(const CodeMatrixView& m, int unit, int lane) {
  // Groups of 128 are the rule: one load instead of a walk over the table.
  const int usual = min(unit / kMaxChunkUnits, m.chunk_count - 1);
  const Chunk& guess = m.chunks[usual];
  if (guess.first_unit <= unit && unit < guess.first_unit + guess.units) return usual;
  // A few loads under way at once: tables of groups of 32 are long.
  constexpr int kAtOnce = 4;
  int chunk = -1;
#pragma unroll 1
  for (int base = 0; base < m.chunk_count; base += 32 * kAtOnce) {
    int first[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = base + 32 * i + lane;
      first[i] = at < m.chunk_count ? int{m.chunks[at].first_unit} : m.units;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      chunk += __popc(__ballot_sync(kAllLanes, first[i] <= unit));
    }
  }
  return chunk;
}

// One unit of up to four strips, by a warp, into the CTA's tile.
template <class Scales>
__device__ __forceinline__ void expand_unit(const CodeMatrixView& m, int first_strip, int strips,
                                            int unit, __half* tile) {
  const Chunk chunk = m.chunks[chunk_of_unit(m, unit, lane_index())];
  const std::int64_t stride = scale_stride(m.kind, m.groups);
  const StripUnits units{m.codes + first_strip * m.strip_bytes +
                             static_cast<std::int64_t>(chunk.offset) * unit_bytes(1) +
                             (unit - static_cast<int>(chunk.first_unit)) * unit_bytes(chunk.bits),
                         m.strip_bytes,
                         m.scales + first_strip * stride + chunk.group * scale_bytes(m.kind),
                         stride, strips};
  with_width(chunk.bits, [&]<int kBits>(std::integral_constant<int, kBits>) {
    write_units<CodesOf<kBits>, Scales>(m, chunk, units, tile);
  });
}

constexpr int kRowEights = kSlots / 8;                   // threads that store a column
constexpr int kStoredAtOnce = kWarps * 32 / kRowEights;  // columns

// This thread's eight slots of every kStoredAtOnce-th of `Columns` columns.
template <int Columns>
__device__ __forceinline__ void store_columns(const __half* tile, __half* row,
                                              std::int64_t row_length) {
#pragma unroll
  for (int i = 0; i < Columns / kStoredAtOnce; ++i) {
    *reinterpret_cast<uint4*>(row + i * kStoredAtOnce * row_length) =
        *reinterpret_cast<const uint4*>(tile + i * kStoredAtOnce * kRow);
  }
}

// grid (units / 4, strips / 4): a warp a unit.
template <class Scales>
__global__ void __launch_bounds__(kWarps * 32) dequantize_kernel(DequantizeArgs args) {
  allow_next();
  __shared__ __align__(16) __half tile[kColumns][kRow];
  const CodeMatrixView& m = args.view;
  const int warp = warp_index();
  const int first_strip = static_cast<int>(blockIdx.y) * kCtaStrips;  // of those asked for
  const int strips = min(kCtaStrips, args.strips - first_strip);
  const int first_unit = static_cast<int>(blockIdx.x) * kWarps;
  if (first_unit + warp < m.units) {
    expand_unit<Scales>(m, args.first_strip + first_strip, strips, first_unit + warp,
                        &tile[0][warp * kUnitSlots]);
  }
  __syncthreads();
  // The product before may still read the rows.
  dependency_wait();
  const int slot = static_cast<int>(threadIdx.x) % kRowEights * 8;
  if (slot >= (m.units - first_unit) * kUnitSlots) return;
  const int column = static_cast<int>(threadIdx.x) / kRowEights;
  const std::int64_t row_length = std::int64_t{m.units} * kUnitSlots;
  const std::int64_t first_row = static_cast<std::int64_t>(first_strip) * kStripColumns;
  __half* row = args.rows + (first_row + column) * row_length + first_unit * kUnitSlots + slot;
  if (strips == kCtaStrips) {
    store_columns<kColumns>(&tile[column][slot], row, row_length);
  } else {
    for (int strip = 0; strip < strips; ++strip) {
      store_columns<kStripColumns>(&tile[strip * kStripColumns + column][slot],
                                   row + strip * kStripColumns * row_length, row_length);
    }
  }
}

}  // namespace

void dequantize(ExecContext& ctx, const DequantizeArgs& args) {
  const dim3 grid(static_cast<unsigned>((args.view.units + kWarps - 1) / kWarps),
                  static_cast<unsigned>((args.strips + kCtaStrips - 1) / kCtaStrips));
  const bool exl2 = args.view.kind == ScaleKind::kExl2;
  launch(shape_of(ctx, grid, kWarps * 32),
         exl2 ? dequantize_kernel<ExlScales> : dequantize_kernel<GptqScales>, args);
}

}  // namespace bl::cuda
