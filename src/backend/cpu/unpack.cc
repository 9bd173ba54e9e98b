#include <cstring>

#include "backend/cpu/pack_plan.h"
#include "backend/cpu/packer.h"
#include "backend/cpu/scale_nibbles.h"
#include "backend/cpu/tile_codes.h"
#include "base/check.h"
#include "tensor/float16.h"

namespace bl::cpu {
namespace {

std::uint16_t half_at(const std::uint8_t* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

struct ColumnScale {
  float scale = 0.0f;
  std::int32_t zero = 0;
};

// The scale of one column of a tile, read without using code of the kernels.
ColumnScale column_scale(const QuantizedWeights& w, const std::uint8_t* scales, std::size_t segment,
                         int column) {
  switch (w.scale_kind) {
    case ScaleKind::kCodes: {
      const int position = nibble_position(column);
      const auto code =
          static_cast<std::size_t>((scales[position / 2] >> (4 * (position % 2))) & 15);
      return {w.tables[16 * segment + code], 0};
    }
    case ScaleKind::kHalf:
      return {half_to_float(half_at(scales + 2 * column)), w.zero};
    case ScaleKind::kHalfZero8:
      return {half_to_float(half_at(scales + 2 * column)), w.zero + scales[32 + column]};
    case ScaleKind::kHalfZero16:
      return {half_to_float(half_at(scales + 2 * column)),
              w.zero + half_at(scales + 32 + 2 * column)};
  }
  return {};
}

// Unpacks one tile into those of columns [16 · tile, 16 · tile + 16) of `out` that exist.
void unpack_tile(const QuantizedWeights& w, std::int64_t tile, const TensorView& out) {
  const auto* start = w.tiles.data() + static_cast<std::size_t>(tile) * w.tile_bytes;
  const std::uint8_t* unit = start + w.codes_offset;
  const std::int32_t* gather = w.layout->gather.data();
  const std::int64_t first = tile * kTileColumns;
  const int columns = static_cast<int>(std::min<std::int64_t>(kTileColumns, out.shape[1] - first));
  for (const Band& band : w.bands) {
    for (int s = band.first_segment; s < band.first_segment + band.segments; ++s) {
      const auto segment = static_cast<std::size_t>(s);
      const std::uint8_t* scales = start + segment * scale_bytes(w.scale_kind);
      for (std::int32_t u = 0; u < w.layout->units[segment]; ++u, unit += 64 * band.bits) {
        const CodeFragment codes = read_unit(unit, band.bits);
        for (int i = 0; i < kUnitSlots; ++i) {
          const std::int32_t channel = *gather++;
          if (channel < 0) continue;
          for (int c = 0; c < columns; ++c) {
            ColumnScale scale = column_scale(w, scales, segment, c);
            if (w.scale_kind == ScaleKind::kCodes) scale.zero = 1 << (band.bits - 1);
            const auto code = static_cast<std::int32_t>(codes.get(i, c));
            out.row<float>(channel)[first + c] =
                half_to_float(float_to_half(static_cast<float>(code - scale.zero) * scale.scale));
          }
        }
      }
    }
  }
}

float element(const DenseWeights& w, std::int64_t index) {
  if (w.type == DenseType::kFloat) {
    float value;
    std::memcpy(&value, w.rows + index * 4, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, w.rows + index * 2, sizeof bits);
  if (w.type == DenseType::kHalf) return half_to_float(bits);
  BFloat16 value;
  value.bits = bits;
  return static_cast<float>(value);
}

}  // namespace

Tensor unpack(const CpuMatrix& matrix) {
  Tensor result = make_host_tensor(DType::kF32, {matrix.in(), matrix.out()});
  const TensorView& out = result.view();
  if (const QuantizedWeights* quantized = matrix.quantized()) {
    for (std::int64_t tile = 0; tile < tiles_of(matrix.out()); ++tile) {
      unpack_tile(*quantized, tile, out);
    }
    return result;
  }
  for (std::int64_t c = 0; c < matrix.out(); ++c) {
    for (std::int64_t i = 0; i < matrix.in(); ++i) {
      out.row<float>(i)[c] = element(*matrix.dense(), c * matrix.in() + i);
    }
  }
  return result;
}

}  // namespace bl::cpu
