#pragma once
// Matrices as kernel parameters, and vector loads and stores.

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/device/alignment.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

// The rows of a matrix.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;  // from row to row, in elements
  __device__ __forceinline__ T* operator[](std::int64_t row) const { return data + row * stride; }
};

template <class T>
Rows<T> rows_of(const TensorView& view) {
  return {view.as<T>(), view.row_stride};
}

// A vector of kCount elements, loaded and stored by one instruction where the hardware has one.
// Pointers must be aligned to the whole vector.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};
template <int kCount, class T>
__device__ __forceinline__ Pack<T, kCount> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}
template <class T, int kCount>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

template <class Integer>
constexpr Integer ceil_div(Integer a, Integer b) {
  return (a + b - 1) / b;
}

}  // namespace bl::cuda
