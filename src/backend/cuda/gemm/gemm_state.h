#pragma once
// What the GEMMs of one card keep between calls.

#include "backend/cuda/device/cuda_device.h"
#include "backend/cuda/gemm/large/blas_lt.h"
#include "backend/cuda/gemm/launch_plan.h"
#include "backend/cuda/gemm/partition/device_tables.h"
#include "backend/cuda/gemm/partition/partition_cache.h"

namespace bl::cuda {

struct GemmState {
  GemmState(const LaunchPlan& plan, DeviceMemory& memory) : launch_plan(plan), blas(memory) {}

  LaunchPlan launch_plan;
  BlasLt blas;
  PartitionCache partitions;
  DeviceTables tables;
};

inline GemmState& gemm_state(const ExecContext& ctx) { return *cuda_device(ctx).gemm; }

}  // namespace bl::cuda
