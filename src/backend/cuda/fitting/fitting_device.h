#pragma once
// The card as the files of this folder use it.

#include <cuda_runtime_api.h>

#include <memory>
#include <span>

#include "backend/cuda/device/cuda_device.h"
#include "backend/cuda/device/device_memory.h"
#include "tensor/tensor.h"

namespace bl::cuda {

class FittingDevice {
 public:
  // Both must outlive this.
  FittingDevice(DeviceMemory& memory, CudaDevice& device) : memory_(memory) {
    ctx_.device = &device;
  }

  // For launches; it has no table of ops and no scratch memory.
  ExecContext& context() { return ctx_; }
  cudaStream_t stream() const { return cuda_device(ctx_).stream; }

  std::shared_ptr<std::byte> take(std::size_t bytes) {
    return memory_.take_ordered(bytes, stream());
  }
  // `count` elements that live as long as the pointer.
  template <class T>
  std::shared_ptr<T> take_array(std::int64_t count) {
    const std::shared_ptr<std::byte> memory = take(static_cast<std::size_t>(count) * sizeof(T));
    return {memory, reinterpret_cast<T*>(memory.get())};
  }
  // An uninitialised F32 matrix.
  Tensor matrix(const Shape& shape);

  // Copies between the card and host memory, finished on return.
  void upload(void* to, const void* from_host, std::size_t bytes);
  void download(void* to_host, const void* from, std::size_t bytes);
  // Host values in the card's memory.
  template <class T>
  std::shared_ptr<T> uploaded(std::span<const T> values) {
    std::shared_ptr<T> copy = take_array<T>(static_cast<std::int64_t>(values.size()));
    upload(copy.get(), values.data(), values.size_bytes());
    return copy;
  }

 private:
  DeviceMemory& memory_;
  ExecContext ctx_;
};

}  // namespace bl::cuda
