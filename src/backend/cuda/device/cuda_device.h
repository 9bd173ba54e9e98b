#pragma once
// The CUDA side of ExecContext::device: the card, its stream and the state that ops share.

#include <cuda_runtime_api.h>

#include "backend/cuda/device/device_facts.h"
#include "ops/exec_context.h"

namespace bl::cuda {

struct GemmState;  // gemm/gemm_state.h

// Copyable, so that an op can change `dependent_launch` for the ops that it calls. It owns nothing:
// the backend keeps everything that it points to alive.
class CudaDevice final : public Device {
 public:
  const DeviceFacts& facts() const { return *facts_; }
  // The address of a float in device memory that holds 1 or 0.
  const float* constant(bool one) const { return constants + (one ? 1 : 0); }

  const DeviceFacts* facts_ = nullptr;
  cudaStream_t stream = nullptr;
  const float* constants = nullptr;  // device memory: 0, 1
  GemmState* gemm = nullptr;
  // Whether kernels are launched with the attribute for programmatic dependent launch (launch.cuh).
  bool dependent_launch = false;
};

inline const CudaDevice& cuda_device(const ExecContext& ctx) {
  return *static_cast<const CudaDevice*>(ctx.device);
}

}  // namespace bl::cuda
