#pragma once
#include <cstdint>

#include "base/host_device.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

// Whether an address is a multiple of `bytes`. Null is.
BL_HD inline bool is_aligned(const void* at, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
}

// Whether each row consists of whole packs of `count` elements, aligned; true of an empty view.
inline bool takes_packs(const TensorView& view, std::int64_t count) {
  return view.empty() ||
         (is_aligned(view.data, static_cast<std::size_t>(count) * size_of(view.dtype)) &&
          view.columns() % count == 0 && (view.rows() <= 1 || view.row_stride % count == 0));
}

// Whether a contiguous array consists of whole packs, aligned; true of an empty one.
inline bool array_takes_packs(const TensorView& view, std::int64_t count) {
  return view.empty() ||
         (is_aligned(view.data, static_cast<std::size_t>(count) * size_of(view.dtype)) &&
          view.shape.elements() % count == 0);
}

}  // namespace bl::cuda
