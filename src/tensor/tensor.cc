#include "tensor/tensor.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "base/error.h"
#include "tensor/arena.h"

namespace bl {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kI16:
      return "I16";
    case DType::kU8:
      return "U8";
    case DType::kI8:
      return "I8";
  }
  return "?";
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", (*this)[i]);
  return text + "]";
}

TensorView slice_rows(const TensorView& view, std::int64_t begin, std::int64_t count) {
  BL_CHECK(begin >= 0 && count >= 0 && begin + count <= view.rows());
  TensorView slice = view;
  slice.data = view.as<std::byte>() +
               begin * view.row_stride * static_cast<std::int64_t>(size_of(view.dtype));
  slice.shape = Shape{count};
  for (int i = 1; i < view.shape.rank(); ++i) slice.shape.append(view.shape[i]);
  return slice;
}

TensorView slice_columns(const TensorView& view, std::int64_t begin, std::int64_t count) {
  BL_CHECK(view.shape.rank() == 2 && begin >= 0 && begin + count <= view.shape[1]);
  TensorView slice = view;
  slice.data = view.as<std::byte>() + begin * static_cast<std::int64_t>(size_of(view.dtype));
  slice.shape = Shape{view.shape[0], count};
  return slice;
}

Buffer try_allocate_host(std::size_t bytes) {
  if (bytes == 0) return {};
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  if (bytes > SIZE_MAX - alignment) return {};
  const std::size_t size = round_up(bytes, alignment);
  void* data = std::aligned_alloc(alignment, size);
  if (data == nullptr) return {};
  if (bytes >= kHugePage) madvise(data, size, MADV_HUGEPAGE);
  return {data, bytes, [](void* p, std::size_t) { std::free(p); }};
}

Buffer allocate_host(std::size_t bytes) {
  Buffer buffer = try_allocate_host(bytes);
  if (buffer.data() == nullptr && bytes > 0) {
    fail(ErrorCode::kOutOfMemory, "cannot allocate {} bytes of host memory", bytes);
  }
  return buffer;
}

Tensor make_host_tensor(DType dtype, Shape shape) {
  const auto bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  return Tensor(allocate_host(std::max<std::size_t>(bytes, 1)), dtype, shape);
}

std::size_t arena_bytes(DType dtype, std::int64_t elements) {
  return round_up(static_cast<std::size_t>(elements) * size_of(dtype), kAlignment);
}

TensorView Arena::take(DType dtype, Shape shape) {
  const std::size_t bytes = arena_bytes(dtype, shape.elements());
  BL_CHECK(used_ + bytes <= buffer_.bytes());
  void* data = static_cast<std::byte*>(buffer_.data()) + used_;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return view_of(data, dtype, shape);
}

}  // namespace bl
