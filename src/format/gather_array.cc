#include "format/gather_array.h"

#include <cstring>
#include <memory>

#include "tensor/tensor.h"

namespace bl {
namespace {

bool are_neighbours(std::span<const std::int32_t> indices) {
  for (std::size_t i = 1; i < indices.size(); ++i) {
    if (indices[i] != indices[i - 1] + 1) return false;
  }
  return true;
}

// Copies the elements (row, column) of `view`, [rows.size(), columns.size()] in the order of both.
struct Gather {
  const TensorView& view;
  std::span<const std::int32_t> rows;     // all where empty
  std::span<const std::int32_t> columns;  // all where empty

  HostArray copy(Shape shape, CodeCopy codes) const {
    if (codes == CodeCopy::kLeftOut) return {view_of(nullptr, view.dtype, shape), nullptr};
    const std::size_t size = size_of(view.dtype);
    auto owner = std::make_shared<const Buffer>(
        allocate_host(static_cast<std::size_t>(shape.elements()) * size));
    auto* to = static_cast<std::byte*>(owner->data());
    const std::size_t row_bytes = static_cast<std::size_t>(view.columns()) * size;
    for (std::int64_t r = 0; r < shape[0]; ++r) {
      const std::int64_t row = rows.empty() ? r : rows[static_cast<std::size_t>(r)];
      const std::byte* from =
          view.as<const std::byte>() + row * view.row_stride * static_cast<std::int64_t>(size);
      if (columns.empty()) {
        std::memcpy(to, from, row_bytes);
        to += row_bytes;
      }
      for (const std::int32_t column : columns) {
        std::memcpy(to, from + static_cast<std::size_t>(column) * size, size);
        to += size;
      }
    }
    return {view_of(owner->data(), view.dtype, shape), owner};
  }
};

}  // namespace

HostArray gather_rows(const HostArray& array, std::span<const std::int32_t> indices,
                      CodeCopy codes) {
  const auto count = static_cast<std::int64_t>(indices.size());
  if (are_neighbours(indices)) return {slice_rows(array.view, indices[0], count), array.owner};
  const Shape shape =
      array.view.shape.rank() == 1 ? Shape{count} : Shape{count, array.view.shape[1]};
  return Gather{array.view, indices, {}}.copy(shape, codes);
}

HostArray gather_columns(const HostArray& array, std::span<const std::int32_t> indices,
                         CodeCopy codes) {
  const auto count = static_cast<std::int64_t>(indices.size());
  if (are_neighbours(indices)) return {slice_columns(array.view, indices[0], count), array.owner};
  return Gather{array.view, {}, indices}.copy({array.view.rows(), count}, codes);
}

}  // namespace bl
