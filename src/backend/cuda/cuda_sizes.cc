#include "backend/cuda/cuda_sizes.h"

#include "backend/cuda/fitting/factor_size.h"
#include "backend/cuda/fitting/slot_runs.h"
#include "backend/cuda/layout/allocation.h"
#include "backend/cuda/layout/packed_size.h"
#include "backend/cuda/moe/expert_scratch.h"
#include "backend/cuda/scratch_plan.h"

namespace bl {

std::size_t CudaSizes::own_bytes() const { return cuda::kBlasWorkspaceBytes + cuda::kTableBytes; }

std::size_t CudaSizes::loading_bytes() const { return cuda::kLaps * cuda::kLapBytes; }

std::size_t CudaSizes::weight_bytes(std::size_t bytes) const {
  return cuda::allocation_bytes(bytes);
}

std::size_t CudaSizes::packed_bytes(const WeightMatrix& matrix, const PackOptions& options) {
  return cuda::packed_bytes(matrix, options.out > 0 ? options.out : out_features(matrix));
}

std::int64_t CudaSizes::packed_inputs(const WeightMatrix& matrix) const {
  return cuda::packed_inputs(matrix);
}

std::size_t CudaSizes::expert_table_bytes(std::int64_t experts) const {
  return cuda::expert_table_bytes(experts);
}

std::size_t CudaSizes::scratch_bytes(const ScratchShape& shape) const {
  return cuda::op_scratch_bytes(shape, multiprocessors());
}

Backend::FittingBytes CudaSizes::fitting_bytes(const FittingShape& shape) const {
  return {cuda::factor_bytes(shape.in),
          cuda::rounding_bytes(shape.in, shape.out, shape.group, shape.sweeps)};
}

}  // namespace bl
