#include "backend/cuda/dequantize.h"

#include "backend/cuda/code_product.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/warp_reduce.cuh"

namespace bl::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kCtaStrips = 4;

// Integers of a pair, as two halves 1024 + code.
__device__ __forceinline__ __half2 with_magic(std::uint32_t pair) {
  const std::uint32_t bits = pair | 0x64006400u;
  return *reinterpret_cast<const __half2*>(&bits);
}

// As products read codes, a lane has pairs of slots 8 apart. What is written are eight slots side
// by side: lane t of four has those of s = t / 2, r = t % 2, pair j of them from lane j. So a lane
// sees the words of all four, which say codes of one place:
struct OwnPlace {
  int pair;  // 8r + 4s: where they are in a word, column h and plane apart
  int top;   // 4s + r: the same of planes of one bit
};
__device__ __forceinline__ std::uint32_t word_of_quad(std::uint32_t word, int j) {
  return __shfl_sync(kAllLanes, word, j, 4);
}

// The codes of a lane, as loaded. pair(h, j, place): two codes, in the low bits of the halves.
template <int Bits>
struct SpreadCodes;

template <>
struct SpreadCodes<4> {
  uint2 w;
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    w = reinterpret_cast<const uint2*>(unit)[lane];
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int j, OwnPlace at) const {
    return word_of_quad(h == 0 ? w.x : w.y, j) >> at.pair & 0x000f000fu;
  }
};

template <>
struct SpreadCodes<2> {
  std::uint32_t w;
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    w = reinterpret_cast<const std::uint32_t*>(unit)[lane];
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int j, OwnPlace at) const {
    return word_of_quad(w, j) >> (at.pair + 2 * h) & 0x00030003u;
  }
};

// The highest bit of widths 3 and 5.
template <>
struct SpreadCodes<1> {
  std::uint32_t w;  // bit 4s + 2h + r of each half
  __device__ __forceinline__ void load(const std::byte* plane, int lane) {
    w = __byte_perm(reinterpret_cast<const std::uint16_t*>(plane)[lane], 0, 0x4140);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int j, OwnPlace at) const {
    return word_of_quad(w, j) >> (at.top + 2 * h) & 0x00010001u;
  }
};

// Low bits, then the others.
template <int Low, int High>
struct TwoPlanes {
  SpreadCodes<Low> low;
  SpreadCodes<High> high;
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    low.load(unit, lane);
    high.load(unit + unit_bytes(Low), lane);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int j, OwnPlace at) const {
    return low.pair(h, j, at) | high.pair(h, j, at) << Low;
  }
};
template <>
struct SpreadCodes<3> : TwoPlanes<2, 1> {};
template <>
struct SpreadCodes<5> : TwoPlanes<4, 1> {};
template <>
struct SpreadCodes<6> : TwoPlanes<4, 2> {};

template <>
struct SpreadCodes<8> {  // the high half comes first
  SpreadCodes<4> high;
  SpreadCodes<4> low;
  __device__ __forceinline__ void load(const std::byte* unit, int lane) {
    high.load(unit, lane);
    low.load(unit + unit_bytes(4), lane);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int j, OwnPlace at) const {
    return low.pair(h, j, at) | high.pair(h, j, at) << 4;
  }
};

// The same unit of a few strips.
struct StripUnits {
  const std::byte* codes = nullptr;  // of the first strip
  std::int64_t stride = 0;
  const std::byte* scales = nullptr;  // of the unit's group, of the first strip
  std::int64_t scale_stride = 0;
  int strips = 0;
  __half* rows = nullptr;  // of the first strip, at the unit's first slot
  std::int64_t row_length = 0;
};

// Writes one strip's values of a unit: `rows` at its first column and slot.
template <class Codes>
__device__ __forceinline__ void write_unit(const Codes& codes, const LaneScales& scales, int lane,
                                           __half* rows, std::int64_t row_length) {
  const int t = lane % 4;
  const OwnPlace place{t % 2 * 8 + t / 2 * 4, t / 2 * 4 + t % 2};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const __half2 scale = __float2half2_rn(scales.scale[h]);
    const __half2 zero = __float2half2_rn(1024.0f + scales.zero[h]);
    __half2 values[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // The difference is exact, so the product is the one rounding that the formats ask for.
      values[j] = __hmul2(__hsub2(with_magic(codes.pair(h, j, place)), zero), scale);
    }
    *reinterpret_cast<uint4*>(rows + (8 * h + lane / 4) * row_length + 8 * t) =
        *reinterpret_cast<const uint4*>(values);
  }
}

// Codes and scales are asked for together.
template <class Codes, class Scales>
__device__ __forceinline__ void write_units(const CodeMatrixView& m, const Chunk& chunk,
                                            const StripUnits& units) {
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
  // The product before may still read the rows.
  dependency_wait();
#pragma unroll
  for (int i = 0; i < kCtaStrips; ++i) {
    if (i >= units.strips) break;
    write_unit(codes[i], of_strip[i], lane, units.rows + i * kStripColumns * units.row_length,
               units.row_length);
  }
}

// The chunk that holds a unit.
__device__ __forceinline__ int chunk_of_unit(const CodeMatrixView& m, int unit, int lane) {
  // Groups of 128 are the rule: one load instead of a walk over the table.
  const int usual = min(unit / kMaxChunkUnits, m.chunk_count - 1);
  const Chunk& guess = m.chunks[usual];
  if (guess.first_unit <= unit && unit < guess.first_unit + guess.units) return usual;
  int chunk = -1;
  for (int base = 0; base < m.chunk_count; base += 32) {
    const bool reached = base + lane < m.chunk_count && m.chunks[base + lane].first_unit <= unit;
    chunk += __popc(__ballot_sync(0xffffffffu, reached));
  }
  return chunk;
}

// One unit of up to four strips, by a warp. `first`: of those asked for.
template <class Scales>
__device__ __forceinline__ void expand_unit(const DequantizeArgs& args, int first, int unit) {
  const CodeMatrixView& m = args.view;
  const int first_strip = args.first_strip + first;
  const std::int64_t row_length = std::int64_t{m.units} * kUnitSlots;
  const Chunk chunk = m.chunks[chunk_of_unit(m, unit, lane_index())];
  const std::int64_t stride = scale_stride(m.kind, m.groups);
  const StripUnits units{m.codes + first_strip * m.strip_bytes +
                             static_cast<std::int64_t>(chunk.offset) * unit_bytes(1) +
                             (unit - static_cast<int>(chunk.first_unit)) * unit_bytes(chunk.bits),
                         m.strip_bytes,
                         m.scales + first_strip * stride + chunk.group * scale_bytes(m.kind),
                         stride,
                         min(kCtaStrips, args.strips - first),
                         args.rows + first * kStripColumns * row_length + unit * kUnitSlots,
                         row_length};
  switch (chunk.bits) {
    case 2:
      write_units<SpreadCodes<2>, Scales>(m, chunk, units);
      break;
    case 3:
      write_units<SpreadCodes<3>, Scales>(m, chunk, units);
      break;
    case 4:
      write_units<SpreadCodes<4>, Scales>(m, chunk, units);
      break;
    case 5:
      write_units<SpreadCodes<5>, Scales>(m, chunk, units);
      break;
    case 6:
      write_units<SpreadCodes<6>, Scales>(m, chunk, units);
      break;
    default:
      write_units<SpreadCodes<8>, Scales>(m, chunk, units);
  }
}

// grid (units / 4, strips / 4): a warp a unit.
template <class Scales>
__global__ void __launch_bounds__(kWarps * 32) dequantize_kernel(DequantizeArgs args) {
  allow_next();
  const int unit = static_cast<int>(blockIdx.x) * kWarps + warp_index();
  if (unit < args.view.units) {
    expand_unit<Scales>(args, static_cast<int>(blockIdx.y) * kCtaStrips, unit);
  } else {
    dependency_wait();
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
