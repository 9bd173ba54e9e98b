// Packed quantized matrices times rows of integer activations. Sums within a segment are exact
// integers; segments are added in order, in float: the same operations for one row (codes decoded
// in registers) and for many (codes decoded once into the L1 cache), so results agree to the bit.

#include "backend/cpu/quantized_simd.h"

namespace bl::cpu::BL_ISA {
namespace {

// 128·high + low of the two partial dot products, less the zero points' share.
template <ScaleKind Kind>
inline F32x16 join(const TileScales<Kind>& scales, I32x16 high, I32x16 low, I32x16 zero_part) {
  static_cast<void>(scales);
  return to_float(shift_left<7>(high) + (low - zero_part));
}

struct RowState {
  const std::uint8_t* scales = nullptr;
  const std::uint8_t* codes = nullptr;
  const std::int8_t* x = nullptr;
  F32x16 sum;
};

// One row through the segments of a band.
template <int Bits, ScaleKind Kind>
inline void row_band(const QuantizedView& w, const ActivationView& x, const Band& band,
                     RowState& state) {
  const std::int32_t zero = Kind == ScaleKind::kCodes ? 1 << (Bits - 1) : w.zero;
  for (int s = band.first_segment; s < band.first_segment + band.segments; ++s) {
    I32x16 high = I32x16::zero();
    I32x16 low = I32x16::zero();
    for (std::int32_t u = 0; u < w.units[s]; ++u) {
      const std::uint8_t* unit = state.codes;
      const std::int8_t* quads = state.x;
      for_each_quad([&]<int q>() {
        const U8x64 codes = decode_quad<Bits, q>(unit);
        high = dot(high, codes, S8x64::splat_quad(quads + 8 * q));
        low = dot(low, codes, S8x64::splat_quad(quads + 8 * q + 4));
      });
      state.codes += 64 * Bits;
      state.x += 2 * kUnitSlots;
    }
    const auto scales = TileScales<Kind>::load(w, state.scales, s);
    state.scales += scale_bytes(Kind);
    const F32x16 total = join(scales, high, low, scales.zero_part(zero, x.sums[s]));
    state.sum = fma(total, scales.scale * F32x16::splat(x.scales[s]), state.sum);
  }
}

template <ScaleKind Kind>
void one_row(const QuantizedView& w, const ActivationView& x, const OutputView& out,
             std::int64_t begin, std::int64_t end) {
  for (std::int64_t tile = begin; tile < end; ++tile) {
    RowState state;
    state.scales = w.tiles + static_cast<std::size_t>(tile) * w.tile_bytes;
    state.codes = state.scales + w.codes_offset;
    state.x = x.codes;
    state.sum = F32x16::splat(0.0f);
    for (int b = 0; b < w.band_count; ++b) {
      with_bits(w.bands[b].bits,
                [&]<int Bits>() { row_band<Bits, Kind>(w, x, w.bands[b], state); });
    }
    write_tile(out, 0, tile, state.sum);
  }
}

// A segment of kBlockTiles (or one) tiles, decoded: [quads][tiles] vectors.
struct DecodedSegment {
  alignas(64) std::uint8_t codes[kMaxSegmentUnits * kQuadsPerUnit * kBlockTiles * 64];
};

template <int Bits, int Tiles>
inline void decode_segment(const std::uint8_t* codes, std::int32_t units, int tile,
                           DecodedSegment& segment) {
  std::uint8_t* to = segment.codes + 64 * tile;
  for (std::int32_t u = 0; u < units; ++u) {
    for_each_quad([&]<int q>() { decode_quad<Bits, q>(codes).store(to + 64 * Tiles * q); });
    codes += 64 * Bits;
    to += 64 * Tiles * kQuadsPerUnit;
  }
}

// What a register block needs besides its rows.
template <ScaleKind Kind, int Tiles>
struct BlockArgs {
  TileScales<Kind> scales[Tiles];
  const std::uint8_t* codes;  // decoded
  int quads;
  std::int32_t zero;  // where one serves all columns
  int segment;
  std::int64_t offset;  // of the segment in a row of activation codes
};

// Rows [row, row + Rows) × Tiles tiles of one segment, into sums [rows][Tiles · 16].
template <ScaleKind Kind, int Rows, int Tiles>
inline void multiply_block(const BlockArgs<Kind, Tiles>& args, const ActivationView& x,
                           std::int64_t row, float* sums) {
  I32x16 high[Rows][Tiles];
  I32x16 low[Rows][Tiles];
  for (int r = 0; r < Rows; ++r) {
    for (int t = 0; t < Tiles; ++t) high[r][t] = low[r][t] = I32x16::zero();
  }
  const std::int8_t* quads = x.codes + row * x.row_bytes + args.offset;
  const std::uint8_t* codes = args.codes;
  for (int q = 0; q < args.quads; ++q) {
    U8x64 c[Tiles];
    for (int t = 0; t < Tiles; ++t) c[t] = U8x64::load(codes + 64 * t);
    for (int r = 0; r < Rows; ++r) {
      const S8x64 h = S8x64::splat_quad(quads + r * x.row_bytes);
      const S8x64 l = S8x64::splat_quad(quads + r * x.row_bytes + 4);
      for (int t = 0; t < Tiles; ++t) {
        high[r][t] = dot(high[r][t], c[t], h);
        low[r][t] = dot(low[r][t], c[t], l);
      }
    }
    codes += 64 * Tiles;
    quads += 8;
  }
  for (int r = 0; r < Rows; ++r) {
    const std::int64_t at = (row + r) * x.segments + args.segment;
    const F32x16 x_scale = F32x16::splat(x.scales[at]);
    for (int t = 0; t < Tiles; ++t) {
      float* sum = sums + ((row + r) * Tiles + t) * kTileColumns;
      const TileScales<Kind>& scales = args.scales[t];
      const F32x16 total =
          join(scales, high[r][t], low[r][t], scales.zero_part(args.zero, x.sums[at]));
      fma(total, scales.scale * x_scale, F32x16::load(sum)).store(sum);
    }
  }
}

// Rows [row, row + rows), rows ≤ Rows.
template <ScaleKind Kind, int Rows, int Tiles>
inline void multiply_last_rows(const BlockArgs<Kind, Tiles>& args, const ActivationView& x,
                               std::int64_t row, float* sums) {
  if constexpr (Rows > 0) {
    if (x.rows - row == Rows) return multiply_block<Kind, Rows, Tiles>(args, x, row, sums);
    multiply_last_rows<Kind, Rows - 1, Tiles>(args, x, row, sums);
  }
}

// Tiles [tile, tile + Tiles) × all rows.
template <ScaleKind Kind, int Tiles>
void many_rows(const QuantizedView& w, const ActivationView& x, const OutputView& out,
               std::int64_t tile) {
  alignas(64) float sums[kMaxPanelRows * Tiles * kTileColumns];
  for (std::int64_t i = 0; i < x.rows * Tiles; ++i) {
    F32x16::splat(0.0f).store(sums + i * kTileColumns);
  }
  DecodedSegment segment;
  BlockArgs<Kind, Tiles> args{};
  args.codes = segment.codes;
  const std::uint8_t* first = w.tiles + static_cast<std::size_t>(tile) * w.tile_bytes;
  std::size_t code_offset = w.codes_offset;
  for (int b = 0; b < w.band_count; ++b) {
    const Band& band = w.bands[b];
    args.zero = Kind == ScaleKind::kCodes ? 1 << (band.bits - 1) : w.zero;
    for (int s = band.first_segment; s < band.first_segment + band.segments; ++s) {
      for (int t = 0; t < Tiles; ++t) {
        const std::uint8_t* start = first + static_cast<std::size_t>(t) * w.tile_bytes;
        with_bits(band.bits, [&]<int Bits>() {
          decode_segment<Bits, Tiles>(start + code_offset, w.units[s], t, segment);
        });
        args.scales[t] =
            TileScales<Kind>::load(w, start + static_cast<std::size_t>(s) * scale_bytes(Kind), s);
      }
      args.segment = s;
      args.quads = w.units[s] * kQuadsPerUnit;
      std::int64_t row = 0;
      for (; row + kBlockRows <= x.rows; row += kBlockRows) {
        multiply_block<Kind, kBlockRows, Tiles>(args, x, row, sums);
      }
      multiply_last_rows<Kind, kBlockRows - 1, Tiles>(args, x, row, sums);
      code_offset += static_cast<std::size_t>(w.units[s] * band.bits) * 64;
      args.offset += std::int64_t{2} * kUnitSlots * w.units[s];
    }
  }
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (int t = 0; t < Tiles; ++t) {
      write_tile(out, r, tile + t, F32x16::load(sums + (r * Tiles + t) * kTileColumns));
    }
  }
}

}  // namespace

void quantized_product(const QuantizedView& w, const ActivationView& x, const OutputView& out,
                       std::int64_t begin, std::int64_t end) {
  with_scale_kind(w.scale_kind, [&]<ScaleKind Kind>() {
    if (x.rows == 1) return one_row<Kind>(w, x, out, begin, end);
    std::int64_t tile = begin;
    for (; tile + kBlockTiles <= end; tile += kBlockTiles) {
      many_rows<Kind, kBlockTiles>(w, x, out, tile);
    }
    for (; tile < end; ++tile) many_rows<Kind, 1>(w, x, out, tile);
  });
}

}  // namespace bl::cpu::BL_ISA
