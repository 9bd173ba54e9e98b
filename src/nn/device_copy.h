#pragma once
// Copies of small host arrays in the backend's memory.

#include <cstdint>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "ops/backend.h"

namespace bl {

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) {
    return DType::kF32;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return DType::kI32;
  } else {
    static_assert(std::is_same_v<T, std::int64_t>);
    return DType::kI64;
  }
}

// A view of host memory to upload from. It is only read; TensorView has no const form.
template <class T>
TensorView host_view(std::span<const T> values, const Shape& shape) {
  BL_CHECK(static_cast<std::int64_t>(values.size()) == shape.elements());
  return view_of(const_cast<T*>(values.data()), dtype_of<T>(), shape);
}

// Copies the values to a tensor that lives as long as the model.
template <class T>
Tensor device_tensor(Backend& backend, std::span<const T> values, const Shape& shape) {
  Tensor tensor(backend.allocate_weights(values.size_bytes()), dtype_of<T>(), shape);
  backend.upload(tensor.view(), host_view(values, shape));
  return tensor;
}

// Copies the values to the scratch memory of this step.
template <class T>
TensorView scratch_copy(ExecContext& ctx, Backend& backend, std::span<const T> values,
                        const Shape& shape) {
  const TensorView view = ctx.scratch->take(dtype_of<T>(), shape);
  backend.upload(view, host_view(values, shape));
  return view;
}

}  // namespace bl
