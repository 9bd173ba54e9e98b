#include "format/select_outputs.h"

#include <array>
#include <memory>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "format/exl2_scale.h"
#include "format/quoted_name.h"

namespace bl {
namespace {

using Columns = std::span<const std::int32_t>;

struct Words {
  std::span<const std::uint32_t> span;
  std::shared_ptr<const void> owner;
};

Words gather_words(std::span<const std::uint32_t> words, std::int64_t row_length, Columns columns,
                   CodeCopy codes) {
  if (codes == CodeCopy::kLeftOut) return {};
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

WeightMatrix select(const DenseMatrix& matrix, Columns columns, CodeCopy codes) {
  return DenseMatrix{matrix.name,
                     matrix.transposed ? gather_columns(matrix.weight, columns, codes)
                                       : gather_rows(matrix.weight, columns, codes),
                     matrix.transposed,
                     {}};
}

WeightMatrix select(const GptqMatrix& matrix, Columns columns, CodeCopy codes) {
  GptqMatrix result = matrix;
  result.out = static_cast<std::int64_t>(columns.size());
  Words words = gather_words(matrix.qweight, matrix.out, columns, codes);
  result.qweight = words.span;
  result.owner = std::move(words.owner);
  result.zeros = gather_halves(matrix.zeros, matrix.out, columns);
  result.scales = gather_halves(matrix.scales, matrix.out, columns);
  return result;
}

// Gathers the 4-bit scale codes of the chosen columns and packs them again.
Words gather_scale_codes(const Exl2Matrix& matrix, Columns columns, CodeCopy codes) {
  if (codes == CodeCopy::kLeftOut) return {};
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

WeightMatrix select(const Exl2Matrix& matrix, Columns columns, CodeCopy codes) {
  if (columns.size() % 32 != 0) {
    fail(ErrorCode::kUnsupported,
         "linear {}: {} outputs cannot be taken out of an EXL2 matrix; only a multiple of 32 can",
         quoted_name(matrix.name), columns.size());
  }
  Exl2Matrix result = matrix;
  result.out = static_cast<std::int64_t>(columns.size());
  Words words = gather_words(matrix.q_weight, matrix.out, columns, codes);
  Words scale = gather_scale_codes(matrix, columns, codes);
  result.q_weight = words.span;
  result.q_scale = scale.span;
  using Owners = std::array<std::shared_ptr<const void>, 3>;
  result.owner = std::make_shared<const Owners>(
      Owners{std::move(words.owner), std::move(scale.owner), matrix.owner});
  return result;
}

}  // namespace

WeightMatrix select_outputs(const WeightMatrix& matrix, Columns columns, CodeCopy codes) {
  BL_CHECK(!columns.empty() && !has_seeded_codes(matrix));
  for (const std::int32_t column : columns) {
    BL_CHECK(column >= 0 && column < out_features(matrix));
  }
  WeightMatrix result =
      std::visit([&](const auto& m) { return select(m, columns, codes); }, matrix);
  const HostArray& bias = bias_of(matrix);
  if (!bias.view.empty()) {
    std::visit([&](auto& m) { m.bias = gather_rows(bias, columns); }, result);
  }
  return result;
}

WeightMatrix slice_outputs(const WeightMatrix& matrix, std::int64_t begin, std::int64_t count) {
  BL_CHECK(begin >= 0 && count > 0 && begin + count <= out_features(matrix));
  if (begin == 0 && count == out_features(matrix)) return matrix;
  std::vector<std::int32_t> columns(static_cast<std::size_t>(count));
  std::iota(columns.begin(), columns.end(), static_cast<std::int32_t>(begin));
  return select_outputs(matrix, columns);
}

}  // namespace bl
