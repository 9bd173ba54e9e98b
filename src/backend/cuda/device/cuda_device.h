#pragma once
// What ops know of the card: the CUDA side of ExecContext::device.

#include <cuda_runtime_api.h>

#include "backend/cuda/device/device_facts.h"
#include "ops/exec_context.h"

namespace bl::cuda {

struct GemmState;  // gemm/gemm_state.h

// Copyable, so that an op can change `dependent_launch` for the ops that it calls. Owns nothing;
// the backend keeps what is pointed to alive.
class CudaDevice final : public Device {
 public:
  const DeviceFacts& facts() const { return *facts_; }
  // 0 or 1 as a float in device memory.
  const float* constant(bool one) const { return constants + (one ? 1 : 0); }

  const DeviceFacts* facts_ = nullptr;
  cudaStream_t stream = nullptr;
  const float* constants = nullptr;  // device memory: 0, 1
  GemmState* gemm = nullptr;
  // Launches carry the attribute for programmatic dependent launch (launch.cuh).
  bool dependent_launch = false;
};

inline const CudaDevice& cuda_device(const ExecContext& ctx) {
  return *static_cast<const CudaDevice*>(ctx.device);
}

}  // namespace bl::cuda
