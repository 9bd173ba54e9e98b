#include "backend/cuda/cuda_entry.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_backend.h"

namespace bl {

bool built_with_cuda() { return true; }

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());  // no driver: not an error of later calls
  return 0;
}

std::unique_ptr<Backend> open_cuda(int device) { return std::make_unique<CudaBackend>(device); }

}  // namespace bl
