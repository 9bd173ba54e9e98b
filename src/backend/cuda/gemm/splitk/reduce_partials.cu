#include "backend/cuda/gemm/splitk/reduce_partials.h"

#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/each_element.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

template <int kPack>
struct ReducePartials {
  Rows<float> to;
  Rows<const float> from;
  Rows<const float> partials;
  std::int64_t rows;
  int count;
  const float* bias;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    Pack<float, kPack> sums{};
    const auto add = [&](const float* values) {
      const auto pack = load_pack<kPack>(values + column);
#pragma unroll
      for (int i = 0; i < kPack; ++i) sums.at[i] += pack.at[i];
    };
    if (from.data != nullptr) add(from[row]);
#pragma unroll 4
    for (int part = 0; part < count; ++part) add(partials[part * rows + row]);
    if (bias != nullptr) add(bias);
    store_pack(to[row] + column, sums);
  }
};

}  // namespace

void reduce_partials(ExecContext& ctx, const PartialSums& sums) {
  const TensorView& to = sums.to;
  BL_CHECK(sums.partials.shape.rank() == 3 && sums.partials.shape[1] == to.rows() &&
           sums.partials.shape[2] == to.columns());
  const TensorView flat =
      view_of(sums.partials.as<float>(), {sums.partials.rows() * to.rows(), to.columns()});
  const bool fours = allows_vector_access(to, 4) && allows_vector_access(flat, 4) &&
                     (sums.from.empty() || allows_vector_access(sums.from, 4)) &&
                     is_aligned(sums.bias, 16);
  for_each_pack<ReducePartials>(ctx, to, fours, rows_of<float>(to), rows_of<const float>(sums.from),
                                rows_of<const float>(flat), to.rows(),
                                static_cast<int>(sums.partials.rows()), sums.bias);
}

}  // namespace bl::cuda
