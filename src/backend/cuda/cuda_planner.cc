#include "backend/cuda/cuda_planner.h"

#include "backend/cuda/packed_size.h"
#include "backend/cuda/scratch_plan.h"
#include "base/error.h"

namespace bl {
namespace {

// Partial results of attention grow a little with these; no card of today has many more.
constexpr int kMultiprocessors = 160;

[[noreturn]] void refuse() {
  fail(ErrorCode::kUnsupported, "cuda: there is no card here; only plans can be made for one");
}

}  // namespace

Buffer CudaPlanner::allocate(std::size_t) { refuse(); }
void CudaPlanner::upload(const TensorView&, const TensorView&) { refuse(); }
void CudaPlanner::download(const TensorView&, const TensorView&) { refuse(); }
std::unique_ptr<PackedMatrix> CudaPlanner::pack(const WeightMatrix&, const PackOptions&) {
  refuse();
}
Tensor CudaPlanner::unpack(const PackedMatrix&) { refuse(); }

std::size_t CudaPlanner::own_bytes() const { return cuda::kBlasWorkspaceBytes + cuda::kTableBytes; }

std::size_t CudaPlanner::driver_bytes() const { return cuda::kDriverBytes + cuda::kContextBytes; }

std::size_t CudaPlanner::loading_bytes() const { return cuda::kLaps * cuda::kLapBytes; }

std::size_t CudaPlanner::weight_bytes(std::size_t bytes) const { return cuda::piece_bytes(bytes); }

std::size_t CudaPlanner::packed_bytes(const WeightMatrix& matrix, const PackOptions& options) {
  return cuda::packed_bytes(matrix, options.out > 0 ? options.out : out_features(matrix));
}

std::int64_t CudaPlanner::packed_inputs(const WeightMatrix& matrix) const {
  return cuda::packed_inputs(matrix);
}

std::size_t CudaPlanner::expert_table_bytes(std::int64_t experts) const {
  return cuda::expert_table_bytes(experts);
}

std::size_t CudaPlanner::scratch_bytes(const ScratchShape& shape) const {
  return cuda::op_scratch_bytes(shape, kMultiprocessors);
}

}  // namespace bl
