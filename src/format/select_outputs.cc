#include "format/select_outputs.h"

#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "format/exl2_scale.h"
#include "format/quoted_name.h"
#include "tensor/tensor.h"

namespace bl {
namespace {

using Columns = std::span<const std::int32_t>;

HostArray make_array(DType dtype, Shape shape) {
  auto owner = std::make_shared<const Buffer>(
      allocate_host(static_cast<std::size_t>(shape.elements()) * size_of(dtype)));
  return {view_of(owner->data(), dtype, shape), owner};
}

// Copies elements columns[j] of a row whose elements have `size` bytes.
void gather(const std::byte* from, Columns columns, std::size_t size, std::byte* to) {
  for (const std::int32_t column : columns) {
    std::memcpy(to, from + static_cast<std::size_t>(column) * size, size);
    to += size;
  }
}

// Copies columns of an array of any dtype: [rows, all] gives [rows, columns], a vector [columns].
HostArray gather_columns(const TensorView& view, Columns columns) {
  const auto count = static_cast<std::int64_t>(columns.size());
  const bool vector = view.shape.rank() == 1;
  const HostArray result =
      make_array(view.dtype, vector ? Shape{count} : Shape{view.rows(), count});
  const std::size_t size = size_of(view.dtype);
  const std::int64_t rows = vector ? 1 : view.rows();
  for (std::int64_t r = 0; r < rows; ++r) {
    gather(view.as<const std::byte>() + r * view.row_stride * static_cast<std::int64_t>(size),
           columns, size,
           result.view.as<std::byte>() + r * count * static_cast<std::int64_t>(size));
  }
  return result;
}

HostArray gather_rows(const TensorView& view, Columns rows) {
  const HostArray result =
      make_array(view.dtype, {static_cast<std::int64_t>(rows.size()), view.shape[1]});
  const std::size_t bytes = static_cast<std::size_t>(view.shape[1]) * size_of(view.dtype);
  auto* to = result.view.as<std::byte>();
  for (const std::int32_t row : rows) {
    std::memcpy(to,
                view.as<const std::byte>() +
                    row * view.row_stride * static_cast<std::int64_t>(size_of(view.dtype)),
                bytes);
    to += bytes;
  }
  return result;
}

struct Words {
  std::span<const std::uint32_t> span;
  std::shared_ptr<const void> owner;
};

Words gather_words(std::span<const std::uint32_t> words, std::int64_t row_length, Columns columns) {
  auto owner = std::make_shared<std::vector<std::uint32_t>>();
  owner->reserve(words.size() / static_cast<std::size_t>(row_length) * columns.size());
  for (const std::uint32_t* row = words.data(); row != words.data() + words.size();
       row += row_length) {
    for (const std::int32_t column : columns) owner->push_back(row[column]);
  }
  return {*owner, owner};
}

std::vector<std::uint16_t> gather_halves(const std::vector<std::uint16_t>& values,
                                         std::int64_t row_length, Columns columns) {
  std::vector<std::uint16_t> result;
  result.reserve(values.size() / static_cast<std::size_t>(row_length) * columns.size());
  for (const std::uint16_t* row = values.data(); row != values.data() + values.size();
       row += row_length) {
    for (const std::int32_t column : columns) result.push_back(row[column]);
  }
  return result;
}

WeightMatrix select(const DenseMatrix& matrix, Columns columns) {
  return DenseMatrix{matrix.name,
                     matrix.transposed ? gather_columns(matrix.weight.view, columns)
                                       : gather_rows(matrix.weight.view, columns),
                     matrix.transposed,
                     {}};
}

WeightMatrix select(const GptqMatrix& matrix, Columns columns) {
  GptqMatrix result = matrix;
  result.out = static_cast<std::int64_t>(columns.size());
  Words words = gather_words(matrix.qweight, matrix.out, columns);
  result.qweight = words.span;
  result.owner = std::move(words.owner);
  result.zeros = gather_halves(matrix.zeros, matrix.out, columns);
  result.scales = gather_halves(matrix.scales, matrix.out, columns);
  return result;
}

// Gathers the 4-bit scale codes of the chosen columns and packs them again.
Words gather_scale_codes(const Exl2Matrix& matrix, Columns columns) {
  auto owner = std::make_shared<std::vector<std::uint32_t>>();
  const std::size_t words = columns.size() / 8;
  for (std::size_t g = 0; g < matrix.groups.size(); ++g) {
    const std::uint32_t* row = matrix.q_scale.data() + g * static_cast<std::size_t>(matrix.out / 8);
    for (std::size_t w = 0; w < words; ++w) {
      std::uint32_t word = 0;
      for (std::size_t i = 0; i < 8; ++i) {
        word |= exl2_scale_code(row, columns[w * 8 + i]) << (4 * i);
      }
      owner->push_back(word);
    }
  }
  return {*owner, owner};
}

WeightMatrix select(const Exl2Matrix& matrix, Columns columns) {
  if (columns.size() % 32 != 0) {
    fail(ErrorCode::kUnsupported,
         "linear {}: {} outputs cannot be taken out of an EXL2 matrix; only a multiple of 32 can",
         quoted_name(matrix.name), columns.size());
  }
  Exl2Matrix result = matrix;
  result.out = static_cast<std::int64_t>(columns.size());
  Words words = gather_words(matrix.q_weight, matrix.out, columns);
  Words scale = gather_scale_codes(matrix, columns);
  result.q_weight = words.span;
  result.q_scale = scale.span;
  using Owners = std::array<std::shared_ptr<const void>, 3>;
  result.owner = std::make_shared<const Owners>(
      Owners{std::move(words.owner), std::move(scale.owner), matrix.owner});
  return result;
}

}  // namespace

WeightMatrix select_outputs(const WeightMatrix& matrix, Columns columns) {
  BL_CHECK(!columns.empty());
  for (const std::int32_t column : columns) {
    BL_CHECK(column >= 0 && column < out_features(matrix));
  }
  WeightMatrix result = std::visit([&](const auto& m) { return select(m, columns); }, matrix);
  const HostArray& bias = bias_of(matrix);
  if (!bias.view.empty()) {
    std::visit([&](auto& m) { m.bias = gather_columns(bias.view, columns); }, result);
  }
  return result;
}

WeightMatrix slice_outputs(const WeightMatrix& matrix, std::int64_t begin, std::int64_t count) {
  BL_CHECK(begin >= 0 && count > 0 && begin + count <= out_features(matrix));
  if (begin == 0 && count == out_features(matrix)) return matrix;
  if (const auto* dense = std::get_if<DenseMatrix>(&matrix); dense && !dense->transposed) {
    DenseMatrix part = *dense;
    part.weight.view = slice_rows(dense->weight.view, begin, count);
    if (!part.bias.view.empty()) part.bias.view = slice_rows(dense->bias.view, begin, count);
    return part;
  }
  std::vector<std::int32_t> columns(static_cast<std::size_t>(count));
  std::iota(columns.begin(), columns.end(), static_cast<std::int32_t>(begin));
  return select_outputs(matrix, columns);
}

}  // namespace bl
