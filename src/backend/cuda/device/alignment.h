#pragma once
#include <cstdint>

#include "base/host_device.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

// Whether an address is a multiple of `bytes`; true of a null pointer.
BL_HD inline bool is_aligned(const void* at, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
}

// Whether every row can be read with vector loads of `count` elements: it starts at a multiple of
// the vector's size and has no remainder. True of an empty view.
inline bool allows_vector_access(const TensorView& view, std::int64_t count) {
  return view.empty() ||
         (is_aligned(view.data, static_cast<std::size_t>(count) * size_of(view.dtype)) &&
          view.columns() % count == 0 && (view.rows() <= 1 || view.row_stride % count == 0));
}

// Whether a contiguous array can be read with vector loads of `count` elements: it is aligned to
// the vector's size and has no remainder. True of an empty array.
inline bool array_allows_vector_access(const TensorView& view, std::int64_t count) {
  return view.empty() ||
         (is_aligned(view.data, static_cast<std::size_t>(count) * size_of(view.dtype)) &&
          view.shape.elements() % count == 0);
}

}  // namespace bl::cuda
