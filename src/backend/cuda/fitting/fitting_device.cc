#include "backend/cuda/fitting/fitting_device.h"

#include "backend/cuda/device/cuda_check.h"

namespace bl::cuda {

Tensor FittingDevice::matrix(const Shape& shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * sizeof(float);
  std::shared_ptr<std::byte> memory = take(bytes);
  std::byte* data = memory.get();
  return {Buffer(std::move(memory), data, bytes), DType::kF32, shape};
}

void FittingDevice::upload(void* to, const void* from_host, std::size_t bytes) {
  if (bytes == 0) return;
  BL_CUDA_CHECK(cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, stream()));
  BL_CUDA_CHECK(cudaStreamSynchronize(stream()));
}

void FittingDevice::download(void* to_host, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  BL_CUDA_CHECK(cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, stream()));
  BL_CUDA_CHECK(cudaStreamSynchronize(stream()));
}

}  // namespace bl::cuda
