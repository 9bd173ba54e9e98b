#include "backend/cpu/cpu_matrix.h"

#include "backend/cpu/isa.h"
#include "base/check.h"

namespace bl::cpu {
namespace {

std::size_t bytes_of(const QuantizedWeights& weights) {
  return weights.tiles.bytes() + weights.tables.size() * sizeof(float);
}
std::size_t bytes_of(const DenseWeights& weights) { return weights.copy.bytes(); }

}  // namespace

QuantizedView QuantizedWeights::view() const {
  static const bool line_pairs = fetches_line_pairs();
  return {.tiles = tiles.data(),
          .tile_bytes = tile_bytes,
          .codes_offset = codes_offset,
          .bands = bands.data(),
          .band_count = static_cast<int>(bands.size()),
          .units = layout->units.data(),
          .tables = tables.data(),
          .scale_kind = scale_kind,
          .zero = zero,
          .line_pairs = line_pairs};
}

std::size_t CpuMatrix::bytes() const {
  return std::visit([](const auto& weights) { return bytes_of(weights); }, weights_);
}

DenseView CpuMatrix::dense_view() const {
  const DenseWeights* weights = dense();
  BL_CHECK(weights != nullptr);
  return {.weight = weights->rows, .type = weights->type, .in = in()};
}

}  // namespace bl::cpu
