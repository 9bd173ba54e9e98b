// Products of packed quantized matrices and rows of integer activations. Sums within a segment are
// exact integers; segments are added in order, in float. That is the same for one row (codes
// decoded in registers) and for many (codes decoded once into the L1 cache), so results agree to
// the bit.
//
// Weights are prefetched as far ahead as the tiles that are processed together are long: they form
// several short streams, which hardware detects too late.

#include "backend/cpu/quantized_simd.h"

namespace bl::cpu::BL_ISA {
namespace {

// The state of one row and some tiles: read positions and sums.
template <int Tiles>
struct RowState {
  const std::uint8_t* scales;  // of the first tile; the others follow tile_bytes apart
  const std::uint8_t* codes;
  const std::int16_t* x;
  F32x16 sum[Tiles];
};

// Multiplies one row with the segments of a band. Two accumulators per tile hide the latency of the
// dot products.
template <int Bits, ScaleKind Kind, int Tiles>
inline void row_band(const QuantizedView& w, const ActivationView& x, const Band& band,
                     RowState<Tiles>& state) {
  const std::int32_t zero = Kind == ScaleKind::kCodes ? 1 << (Bits - 1) : w.zero;
  const std::size_t ahead = Tiles * w.tile_bytes;
  for (int s = band.first_segment; s < band.first_segment + band.segments; ++s) {
    I32x16 sums[Tiles][2];
    unroll<Tiles>([&]<int t>() { sums[t][0] = sums[t][1] = I32x16::zero(); });
    for (std::int32_t u = 0; u < w.units[s]; ++u) {
      unroll<Tiles>([&]<int t>() {
        const std::uint8_t* next = state.codes + ahead + t * w.tile_bytes;
        w.line_pairs ? prefetch_unit<Bits, 2>(next) : prefetch_unit<Bits>(next);
      });
      unroll<kPairsPerUnit>([&]<int p>() {
        const I16x32 pair = I16x32::splat_pair(state.x + 2 * p);
        unroll<Tiles>([&]<int t>() {
          const I16x32 codes = decode_pair<Bits, p>(state.codes + t * w.tile_bytes);
          sums[t][p % 2] = dot(sums[t][p % 2], codes, pair);
        });
      });
      state.codes += 64 * Bits;
      state.x += kUnitSlots;
    }
    unroll<Tiles>([&]<int t>() {
      const auto scales = StageScales<Kind>::load(w, state.scales + t * w.tile_bytes, s);
      const I32x16 total = sums[t][0] + sums[t][1] - scales.zero_part(zero, x.sums[s]);
      state.sum[t] = fma(to_float(total), scales.scale * F32x16::splat(x.scales[s]), state.sum[t]);
    });
    state.scales += scale_bytes(Kind);
  }
}

// Multiplies tiles [tile, tile + Tiles) with one row.
template <ScaleKind Kind, int Tiles>
[[gnu::flatten]] void one_row(const QuantizedView& w, const ActivationView& x,
                              const OutputView& out, std::int64_t tile) {
  RowState<Tiles> state;
  state.scales = w.tiles + static_cast<std::size_t>(tile) * w.tile_bytes;
  state.codes = state.scales + w.codes_offset;
  state.x = x.codes;
  unroll<Tiles>([&]<int t>() { state.sum[t] = F32x16::splat(0.0f); });
  for (int b = 0; b < w.band_count; ++b) {
    with_bits(w.bands[b].bits,
              [&]<int Bits>() { row_band<Bits, Kind, Tiles>(w, x, w.bands[b], state); });
  }
  unroll<Tiles>([&]<int t>() { write_tile(out, 0, tile + t, state.sum[t]); });
}

// One segment of some tiles, decoded for many rows.
template <int Tiles>
struct DecodedSegment {
  alignas(64) std::uint8_t codes[kMaxSegmentUnits * kPairsPerUnit * Tiles * 64];  // [pairs][Tiles]
  F32x16 scale[Tiles];
  I32x16 zeros[Tiles];    // if columns have their own zero points
  std::int32_t zero = 0;  // otherwise
  std::int32_t units = 0;
  std::int64_t index = 0;
  const std::int16_t* x = nullptr;  // activations of the first row
};

// Not inlined: one copy for each width and number of tiles is enough.
template <int Bits, int Tiles>
[[gnu::noinline]] void decode_codes(const std::uint8_t* codes, std::int32_t units,
                                    std::size_t ahead, std::uint8_t* to) {
  for (std::int32_t u = 0; u < units; ++u) {
    prefetch_unit<Bits>(codes + ahead);
    unroll<Bits>([&]<int v>() { prefetch_near(codes + 64 * (Bits + v)); });
    unroll<kPairsPerUnit>([&]<int p>() { decode_pair<Bits, p>(codes).store(to + 64 * Tiles * p); });
    codes += 64 * Bits;
    to += 64 * Tiles * kPairsPerUnit;
  }
}

// Multiplies a register block of Rows rows × Tiles tiles of one segment, and adds to sums
// [rows][Tiles · 16]. If there are few rows, each has two accumulators to hide the latency of
// the dot products.
template <bool ColumnZeros, int Rows, int Tiles>
[[gnu::always_inline]] inline void multiply_block(const DecodedSegment<Tiles>& segment,
                                                  const ActivationView& x, std::int64_t row,
                                                  float* sums) {
  constexpr int kChains = Rows <= 2 ? 2 : 1;
  I32x16 total[Rows][Tiles][kChains];
  const std::int32_t* x_sums = x.sums + row * x.segments + segment.index;
  unroll<Rows>([&]<int r>() {
    const std::int32_t x_sum = x_sums[r * x.segments];
    unroll<Tiles>([&]<int t>() {
      if constexpr (ColumnZeros) {
        total[r][t][0] = I32x16::zero() - segment.zeros[t] * I32x16::splat(x_sum);
      } else {
        total[r][t][0] = I32x16::splat(-segment.zero * x_sum);
      }
      if constexpr (kChains > 1) total[r][t][1] = I32x16::zero();
    });
  });
  const std::int16_t* quads = segment.x + row * kUnitSlots;
  const std::uint8_t* codes = segment.codes;
  std::int32_t units = segment.units;  // ≥ 1
  do {
    unroll<kPairsPerUnit>([&]<int p>() {
      I16x32 c[Tiles];
      unroll<Tiles>([&]<int t>() { c[t] = I16x32::load(codes + 64 * (p * Tiles + t)); });
      unroll<Rows>([&]<int r>() {
        const I16x32 pair = I16x32::splat_pair(quads + r * kUnitSlots + 2 * p);
        unroll<Tiles>([&]<int t>() {
          I32x16& chain = total[r][t][p % kChains];
          chain = dot(chain, c[t], pair);
        });
      });
    });
    codes += 64 * Tiles * kPairsPerUnit;
    quads += x.row_pitch * kUnitSlots;
  } while (--units > 0);
  const float* x_scales = x.scales + row * x.segments + segment.index;
  unroll<Rows>([&]<int r>() {
    const F32x16 x_scale = F32x16::splat(x_scales[r * x.segments]);
    unroll<Tiles>([&]<int t>() {
      if constexpr (kChains > 1) total[r][t][0] = total[r][t][0] + total[r][t][1];
      float* sum = sums + ((row + r) * Tiles + t) * kTileColumns;
      fma(to_float(total[r][t][0]), segment.scale[t] * x_scale, F32x16::load(sum)).store(sum);
    });
  });
}

// Multiplies the rows from `row` on, Rows at a time while that many are left.
template <bool ColumnZeros, int Rows, int Tiles>
[[gnu::flatten]] void multiply_rows(const DecodedSegment<Tiles>& segment, const ActivationView& x,
                                    std::int64_t row, float* sums) {
  for (; row + Rows <= x.rows; row += Rows) {
    multiply_block<ColumnZeros, Rows, Tiles>(segment, x, row, sums);
  }
  if constexpr (Rows > 1) {
    if (row < x.rows) multiply_rows<ColumnZeros, Rows / 2, Tiles>(segment, x, row, sums);
  }
}

// Multiplies tiles [tile, tile + Tiles) with all rows.
template <ScaleKind Kind, int Tiles>
void many_rows(const QuantizedView& w, const ActivationView& x, const OutputView& out,
               std::int64_t tile) {
  alignas(64) float sums[kMaxPanelRows * Tiles * kTileColumns];
  for (std::int64_t i = 0; i < x.rows * Tiles; ++i) {
    F32x16::splat(0.0f).store(sums + i * kTileColumns);
  }
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (int t = 0; t < Tiles; ++t) {
      prefetch_to_write(out.out + r * out.stride + (tile + t) * kTileColumns);
    }
  }
  DecodedSegment<Tiles> segment;
  segment.x = x.codes;
  const std::uint8_t* first = w.tiles + static_cast<std::size_t>(tile) * w.tile_bytes;
  std::size_t code_offset = w.codes_offset;
  for (int b = 0; b < w.band_count; ++b) {
    const Band& band = w.bands[b];
    segment.zero = Kind == ScaleKind::kCodes ? 1 << (band.bits - 1) : w.zero;
    for (int s = band.first_segment; s < band.first_segment + band.segments; ++s) {
      segment.index = s;
      segment.units = w.units[s];
      for (int t = 0; t < Tiles; ++t) {
        const std::uint8_t* start = first + static_cast<std::size_t>(t) * w.tile_bytes;
        with_bits(band.bits, [&]<int Bits>() {
          decode_codes<Bits, Tiles>(start + code_offset, segment.units, Tiles * w.tile_bytes,
                                    segment.codes + 64 * t);
        });
        const auto scales =
            StageScales<Kind>::load(w, start + static_cast<std::size_t>(s) * scale_bytes(Kind), s);
        segment.scale[t] = scales.scale;
        if constexpr (kColumnZeros<Kind>) segment.zeros[t] = scales.zero;
      }
      multiply_rows<kColumnZeros<Kind>, kBlockRows, Tiles>(segment, x, 0, sums);
      code_offset += static_cast<std::size_t>(segment.units * band.bits) * 64;
      segment.x += segment.units * x.row_pitch * kUnitSlots;
    }
  }
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (int t = 0; t < Tiles; ++t) {
      write_tile(out, r, tile + t, F32x16::load(sums + (r * Tiles + t) * kTileColumns));
    }
  }
}

// Calls product.template operator()<Tiles>(tile) over [begin, end), Tiles at a time while
// that many are left.
template <int Tiles, class F>
void for_tiles(std::int64_t begin, std::int64_t end, const F& product) {
  for (; begin + Tiles <= end; begin += Tiles) product.template operator()<Tiles>(begin);
  if constexpr (Tiles > 1) {
    if (begin < end) for_tiles<Tiles / 2>(begin, end, product);
  }
}

}  // namespace

void quantized_product(const QuantizedView& w, const ActivationView& x, const OutputView& out,
                       std::int64_t begin, std::int64_t end) {
  with_scale_kind(w.scale_kind, [&]<ScaleKind Kind>() {
    if constexpr (kRowKernels) {
      if (x.rows == 1) {
        return for_tiles<kRowTiles>(begin, end, [&]<int Tiles>(std::int64_t tile) {
          one_row<Kind, Tiles>(w, x, out, tile);
        });
      }
    }
    for_tiles<kBlockTiles>(
        begin, end, [&]<int Tiles>(std::int64_t tile) { many_rows<Kind, Tiles>(w, x, out, tile); });
  });
}

}  // namespace bl::cpu::BL_ISA
