#include "convert/substitute.h"

#include "format/dequantize.h"

namespace bl {
namespace {

// Binary16 bits [out, in] of a quantized matrix.
std::vector<std::uint16_t> rows_of(const WeightMatrix& matrix) {
  const std::vector<std::uint16_t> halves = dequantize_to_half(matrix);
  const std::int64_t in = in_features(matrix), out = out_features(matrix);
  std::vector<std::uint16_t> rows(halves.size());
  for (std::int64_t i = 0; i < in; ++i) {
    for (std::int64_t c = 0; c < out; ++c) {
      rows[static_cast<std::size_t>(c * in + i)] = halves[static_cast<std::size_t>(i * out + c)];
    }
  }
  return rows;
}

}  // namespace

void Substitutes::add(const LinearSite& linear, std::vector<std::uint16_t> rows) {
  auto held = std::make_unique<Held>();
  held->rows = std::move(rows);
  DenseMatrix dense;
  dense.name = linear.key;
  dense.weight.view = view_of(held->rows.data(), DType::kF16, Shape{linear.out(), linear.in()});
  held->packed = backend_.pack(dense, {});
  hold(linear, std::move(held));
}

void Substitutes::add(const LinearSite& linear, const WeightMatrix& matrix) {
  if (out_features(matrix) != linear.out()) return add(linear, rows_of(matrix));
  auto held = std::make_unique<Held>();
  held->packed = backend_.pack(matrix, {});
  hold(linear, std::move(held));
}

void Substitutes::hold(const LinearSite& linear, std::unique_ptr<Held> held) {
  map_[linear.packed] = held->packed.get();
  held_.push_back(std::move(held));
}

}  // namespace bl
