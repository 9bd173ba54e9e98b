#include "backend/cuda/cuda_planner.h"

#include "backend/cuda/layout/packed_size.h"
#include "base/error.h"

namespace bl {
namespace {

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

std::size_t CudaPlanner::driver_bytes() const { return cuda::kDriverBytes + cuda::kContextBytes; }

}  // namespace bl
