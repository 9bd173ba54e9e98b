#include "backend/cuda/device/read_device_facts.h"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/device/stand_in.h"
#include "base/error.h"

namespace bl::cuda {
namespace {

constexpr int kOldest = 75;

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  BL_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

[[noreturn]] void refuse_driver(int index) {
  int driver = 0;  // cudaDriverGetVersion also reports 0 where there is no driver
  static_cast<void>(cudaDriverGetVersion(&driver));
  if (driver == 0) fail(ErrorCode::kUnsupported, "cuda:{}: no NVIDIA driver here", index);
  fail(ErrorCode::kUnsupported,
       "cuda:{}: the NVIDIA driver here is one of CUDA {}.{}, this build needs one of {}.{} or "
       "newer",
       index, driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

}  // namespace

DeviceFacts read_device_facts(int index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) refuse_driver(index);
  if (error != cudaSuccess || count == 0) {
    fail(ErrorCode::kUnsupported, "cuda:{}: no NVIDIA card here ({})", index,
         cudaGetErrorString(error));
  }
  if (index < 0 || index >= count) {
    fail(ErrorCode::kInvalidArgument, "cuda:{}: this machine's cards are cuda:0 … cuda:{}", index,
         count - 1);
  }
  DeviceFacts facts;
  facts.index = index;
  BL_CUDA_CHECK(cudaSetDevice(index));
  cudaDeviceProp properties{};
  BL_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  facts.name = properties.name;
  facts.compute_capability = properties.major * 10 + properties.minor;
  facts.multiprocessors = properties.multiProcessorCount;
  facts.shared_bytes_per_cta =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
  facts.shared_bytes_per_multiprocessor =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, index));
  facts.largest_pitch = static_cast<std::size_t>(attribute(cudaDevAttrMaxPitch, index));
  if (facts.compute_capability < kOldest) {
    fail(ErrorCode::kUnsupported,
         "cuda:{}: {} has compute capability {}.{}, 7.5 or later is needed", index, facts.name,
         properties.major, properties.minor);
  }
  const char* as = std::getenv("BITLOOM_CUDA_CAPABILITY");
  act_as(facts, as == nullptr ? 0 : parse_stand_in(as), code_capability());
  BL_CUDA_CHECK(cudaMemGetInfo(&facts.free_bytes, &facts.memory_bytes));
  return facts;
}

}  // namespace bl::cuda
