#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tensor/float16.h"

namespace bl {

enum class DType : std::uint8_t { kF32, kF16, kBF16, kI64, kI32, kI16, kU8, kI8 };

// The bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
      return 2;
    case DType::kU8:
    case DType::kI8:
      return 1;
  }
  return 0;
}

// The name that safetensors uses ("F32", "BF16", …).
std::string_view name_of(DType dtype);

template <class T>
struct Tag {
  using type = T;
};

// Calls f(Tag<T>{}) with the C++ type of a floating-point dtype. Any other dtype is a bug.
template <class F>
decltype(auto) visit_float_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF16:
      return f(Tag<Half>{});
    case DType::kBF16:
      return f(Tag<BFloat16>{});
    default:
      BL_CHECK(dtype == DType::kF32);
      return f(Tag<float>{});
  }
}

}  // namespace bl
