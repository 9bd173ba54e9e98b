#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "tensor/tensor_view.h"

namespace bl {

// Owned memory of the host or a device. Either a deleter frees it, or it is part of a larger block
// that it shares with other owners.
class Buffer {
 public:
  using Deleter = void (*)(void* data, std::size_t bytes);
  Buffer() = default;
  Buffer(void* data, std::size_t bytes, Deleter deleter)
      : data_(data), bytes_(bytes), deleter_(deleter) {}
  // A part of the memory that `owner` keeps alive.
  Buffer(std::shared_ptr<void> owner, void* data, std::size_t bytes)
      : data_(data), bytes_(bytes), owner_(std::move(owner)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (deleter_ != nullptr && data_ != nullptr) deleter_(data_, bytes_);
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(deleter_, other.deleter_);
    std::swap(owner_, other.owner_);
  }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Deleter deleter_ = nullptr;
  std::shared_ptr<void> owner_;
};

// Uninitialised host memory, aligned to 64 bytes; from 2 MiB on it is aligned to 2 MiB and the
// kernel is advised to use huge pages. Throws kOutOfMemory.
Buffer allocate_host(std::size_t bytes);
// Like allocate_host(), but returns an empty buffer where there is no memory.
Buffer try_allocate_host(std::size_t bytes);

// An owning array: a buffer and a contiguous view of it.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Buffer buffer, DType dtype, Shape shape)
      : buffer_(std::move(buffer)), view_(view_of(buffer_.data(), dtype, shape)) {}
  const TensorView& view() const { return view_; }
  bool empty() const { return view_.empty(); }

 private:
  Buffer buffer_;
  TensorView view_;
};

// An uninitialised tensor in host memory. Throws kOutOfMemory.
Tensor make_host_tensor(DType dtype, Shape shape);

}  // namespace bl
