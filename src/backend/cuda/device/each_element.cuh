#pragma once
// The launch that elementwise ops share: each thread handles kPack neighbouring elements of a row.

#include <algorithm>
#include <type_traits>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"

namespace bl::cuda {

inline constexpr int kElementThreads = 256;

// op(row, column) handles the kPack elements of the row that begin at `column`.
template <int kPack, class Op>
__global__ void __launch_bounds__(kElementThreads)
    each_element_kernel(std::int64_t rows, std::int64_t width, Op op) {
  pdl_trigger();
  pdl_wait();
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (column >= width) return;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
       row < rows; row += step) {
    op(row, column);
  }
}

// Runs `op` over rows × width elements; `width` must be a multiple of kPack.
template <int kPack, class Op>
void for_each_element(ExecContext& ctx, std::int64_t rows, std::int64_t width, const Op& op) {
  if (rows <= 0 || width <= 0) return;
  const std::int64_t packs = width / kPack;
  int across = 32;
  while (across < kElementThreads && across < packs) across *= 2;
  // A single row is spread over more CTAs, because only its latency counts.
  const int down = rows == 1 ? 1 : kElementThreads / across;
  if (rows == 1) across = std::min(across, 128);
  const dim3 grid(
      static_cast<unsigned>(ceil_div<std::int64_t>(packs, across)),
      static_cast<unsigned>(std::min<std::int64_t>(ceil_div<std::int64_t>(rows, down), 65535)));
  launch(shape_of(ctx, grid, dim3(static_cast<unsigned>(across), static_cast<unsigned>(down))),
         each_element_kernel<kPack, Op>, rows, width, op);
}

// Calls run(std::integral_constant<int, kPack>) with kPack = 4 where `fours` is true, else with 1.
template <class Run>
void with_pack_size(bool fours, const Run& run) {
  if (fours) {
    run(std::integral_constant<int, 4>{});
  } else {
    run(std::integral_constant<int, 1>{});
  }
}

// Runs Op<kPack>{members…} over all elements of x.
template <template <int> class Op, class... Members>
void for_each_pack(ExecContext& ctx, const TensorView& x, bool fours, const Members&... members) {
  with_pack_size(fours, [&]<int kPack>(std::integral_constant<int, kPack>) {
    for_each_element<kPack>(ctx, x.rows(), x.columns(), Op<kPack>{members...});
  });
}

// Replaces each of the kPack elements at `to` by change(element, index in 0 … kPack − 1).
template <int kPack, class Change>
__device__ __forceinline__ void change_pack(float* to, const Change& change) {
  auto values = load_pack<kPack>(to);
#pragma unroll
  for (int i = 0; i < kPack; ++i) values.at[i] = change(values.at[i], i);
  store_pack(to, values);
}

}  // namespace bl::cuda
