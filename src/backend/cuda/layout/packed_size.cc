#include "backend/cuda/layout/packed_size.h"
#include "backend/cuda/layout/allocation.h"

#include <vector>

#include "backend/cuda/layout/code_pack_plan.h"

namespace bl::cuda {

namespace {

std::size_t bytes_of(const DenseMatrix& dense, std::int64_t out) {
  return allocation_bytes(static_cast<std::size_t>(dense.in() * out) *
                          size_of(dense.weight.view.dtype));
}
std::size_t bytes_of(const GptqMatrix& gptq, std::int64_t out) {
  return plan_codes(gptq, out).layout().total;
}
std::size_t bytes_of(const Exl2Matrix& exl2, std::int64_t out) {
  return plan_codes(exl2, out).layout().total;
}

}  // namespace

std::size_t packed_bytes(const WeightMatrix& matrix, std::int64_t out) {
  return std::visit([&](const auto& m) { return bytes_of(m, out); }, matrix);
}

std::int64_t packed_inputs(const WeightMatrix& matrix) {
  const auto* gptq = std::get_if<GptqMatrix>(&matrix);
  if (gptq == nullptr) return (in_features(matrix) + kKStepSize - 1) / kKStepSize * kKStepSize;
  std::vector<std::int64_t> members(static_cast<std::size_t>(gptq->groups));
  for (const std::int32_t group : gptq->group_of) ++members[static_cast<std::size_t>(group)];
  std::int64_t k = 0;
  for (const std::int64_t count : members) {
    k += (count + kKStepSize - 1) / kKStepSize * kKStepSize;
  }
  return k;
}

}  // namespace bl::cuda
