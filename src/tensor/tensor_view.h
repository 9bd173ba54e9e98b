#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace bl {

// Borrowed memory seen as an array. Rows (dimension 0) may lie further apart than their length, so
// that a slice of columns is a view; within a row everything is contiguous. A read-only view has
// the same type: each op's contract says which views it writes through.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  std::int64_t row_stride = 0;  // elements from one row to the next; set by view_of()

  bool empty() const { return data == nullptr; }
  std::int64_t rows() const { return shape.rank() == 0 ? 0 : shape[0]; }
  // The number of elements of one row.
  std::int64_t columns() const { return rows() == 0 ? 0 : shape.elements() / rows(); }

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  template <class T>
  T* row(std::int64_t i) const {
    return static_cast<T*>(data) + i * row_stride;
  }
};

// A contiguous view.
inline TensorView view_of(void* data, DType dtype, Shape shape) {
  TensorView view{data, dtype, shape, 0};
  view.row_stride = view.columns();
  return view;
}
inline TensorView view_of(float* data, Shape shape) { return view_of(data, DType::kF32, shape); }

// A view of rows [begin, begin + count). `view` must have rank 1 or more.
TensorView slice_rows(const TensorView& view, std::int64_t begin, std::int64_t count);
// A view of columns [begin, begin + count). `view` must have rank 2.
TensorView slice_columns(const TensorView& view, std::int64_t begin, std::int64_t count);

}  // namespace bl
