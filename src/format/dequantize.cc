#include "format/dequantize.h"

#include "format/bit_codec.h"
#include "format/exl2_scale.h"
#include "tensor/float16.h"

namespace bl {
namespace {

// Decodes one run of 32 slots of an EXL2 group in one column (docs/formats/exl2.md §10).
template <int Bits>
void decode_run(const Exl2Matrix& matrix, const std::uint32_t* words, float scale,
                std::int32_t (&values)[kCodesPerRun], std::uint16_t (&halves)[kCodesPerRun]) {
  BitCodec<Bits>::read_run(words, matrix.out, values);
  for (int i = 0; i < kCodesPerRun; ++i) {
    halves[i] = float_to_half(static_cast<float>(values[i] - exl2_center(Bits)) * scale);
  }
}

template <int Bits>
void decode_group(const Exl2Matrix& matrix, std::size_t g, RowOrder order, std::uint16_t* result) {
  const Exl2Matrix::Group& group = matrix.groups[g];
  const std::uint32_t* scale_row =
      matrix.q_scale.data() + static_cast<std::int64_t>(g) * (matrix.out / 8);
  const float group_scale = exl2_group_scale(matrix.q_scale_max[g]);
  std::int32_t values[kCodesPerRun];
  std::uint16_t halves[kCodesPerRun];
  for (std::int32_t run = 0; run < group.slots / kCodesPerRun; ++run) {
    const std::int32_t slot = group.first_slot + run * kCodesPerRun;
    const std::uint32_t* words =
        matrix.q_weight.data() + (std::int64_t{group.first_word} + run * Bits) * matrix.out;
    std::uint16_t* rows[kCodesPerRun];
    for (int i = 0; i < kCodesPerRun; ++i) {
      const std::int64_t row =
          order == RowOrder::kStored ? slot + i : matrix.perm[static_cast<std::size_t>(slot + i)];
      rows[i] = result + row * matrix.out;
    }
    for (std::int64_t c = 0; c < matrix.out; ++c) {
      const float scale = exl2_column_scale(group_scale, exl2_scale_code(scale_row, c));
      decode_run<Bits>(matrix, words + c, scale, values, halves);
      for (int i = 0; i < kCodesPerRun; ++i) rows[i][c] = halves[i];
    }
  }
}

void decode(const Exl2Matrix& matrix, RowOrder order, std::uint16_t* result) {
  for (std::size_t g = 0; g < matrix.groups.size(); ++g) {
    const bool known = visit_code_width(
        matrix.groups[g].bits, [&]<int Bits>() { decode_group<Bits>(matrix, g, order, result); });
    BL_CHECK(known);
  }
}

void decode(const GptqMatrix& matrix, RowOrder, std::uint16_t* result) {
  for (std::int64_t i = 0; i < matrix.in; ++i) {
    const std::int64_t first = matrix.group_of[static_cast<std::size_t>(i)] * matrix.out;
    const std::uint16_t* zeros = matrix.zeros.data() + first;
    const std::uint16_t* scales = matrix.scales.data() + first;
    for (std::int64_t c = 0; c < matrix.out; ++c) {
      const auto code = static_cast<std::int32_t>(
          read_code(matrix.qweight.data() + c, matrix.out, i, matrix.bits));
      *result++ = float_to_half(static_cast<float>(code - zeros[c]) * half_to_float(scales[c]));
    }
  }
}

std::uint16_t to_half(Half value) { return value.bits; }
std::uint16_t to_half(BFloat16 value) { return float_to_half(static_cast<float>(value)); }
std::uint16_t to_half(float value) { return float_to_half(value); }

void decode(const DenseMatrix& matrix, RowOrder, std::uint16_t* result) {
  const std::int64_t in = matrix.in(), out = matrix.out();
  visit_float_dtype(matrix.weight.view.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t r = 0; r < matrix.weight.view.rows(); ++r) {
      const T* row = matrix.weight.view.row<const T>(r);
      if (matrix.transposed) {
        for (std::int64_t c = 0; c < out; ++c) result[r * out + c] = to_half(row[c]);
      } else {
        for (std::int64_t i = 0; i < in; ++i) result[i * out + r] = to_half(row[i]);
      }
    }
  });
}

}  // namespace

std::vector<std::uint16_t> dequantize_to_half(const WeightMatrix& matrix, RowOrder order) {
  std::vector<std::uint16_t> result(
      static_cast<std::size_t>(in_features(matrix) * out_features(matrix)));
  std::visit([&](const auto& m) { decode(m, order, result.data()); }, matrix);
  return result;
}

}  // namespace bl
