#pragma once
// TensorViews as kernels get them, and loads of several elements at once.

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/device/alignment.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

// Strided rows.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;  // elements
  __device__ __forceinline__ T* operator[](std::int64_t row) const { return data + row * stride; }
};

template <class T>
Rows<T> rows_of(const TensorView& view) {
  return {view.as<T>(), view.row_stride};
}

// kCount elements that are loaded and stored at once; pointers must be aligned to all of it.
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
