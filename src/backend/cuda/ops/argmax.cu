// The index of the largest logit of each row. Two kernels: argmax_parts_kernel reduces each part of
// a row to a key, argmax_kernel compares a row's keys in one warp. Runs on every card; bound by
// reading the logits.

#include <algorithm>
#include <cfloat>

#include "backend/cuda/device/each_element.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/ops/argmax.h"
#include "backend/cuda/ops/row_ops.h"
#include "tensor/arena.h"

namespace bl::cuda {
namespace {

using Key = unsigned long long;

constexpr int kThreads = 256;
constexpr Key kBad = ~Key{0};  // the row has a NaN or +∞; greater than any other key

// Keys are ordered as their values are; of equal values, the lower index has the greater key. No
// key is 0.
__device__ __forceinline__ Key key_of(float value, std::uint32_t index) {
  const std::uint32_t bits = __float_as_uint(value + 0.0f);  // −0 becomes +0
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<Key>(ordered) << 32 | (0xffffffffu - index);
}

// Grid (parts, rows). Writes the greatest key of each part of each row.
template <int kPack>
__global__ void __launch_bounds__(kThreads)
    argmax_parts_kernel(Rows<const float> logits, int vocab, int part_size, Key* keys) {
  __shared__ Key warp_keys[kThreads / 32];
  pdl_trigger();
  pdl_wait();
  const float* row = logits[blockIdx.y];
  const int begin = static_cast<int>(blockIdx.x) * part_size;
  const int end = min(begin + part_size, vocab);
  float best = -INFINITY;
  int at = begin;
  bool bad = false;
#pragma unroll 4
  for (int i = begin + static_cast<int>(threadIdx.x) * kPack; i < end; i += kThreads * kPack) {
    const auto values = load_pack<kPack>(row + i);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const float x = values.at[e];
      bad = bad || !(x <= FLT_MAX);
      at = x > best ? i + e : at;
      best = x > best ? x : best;
    }
  }
  const Key key = warp_max(bad ? kBad : key_of(best, static_cast<std::uint32_t>(at)));
  if (lane_index() == 0) warp_keys[threadIdx.x / 32] = key;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const Key all = warp_max(lane_index() < kThreads / 32 ? warp_keys[lane_index()] : Key{0});
  if (lane_index() == 0) keys[blockIdx.y * gridDim.x + blockIdx.x] = all;
}

// One CTA of one warp a row. Writes −1 where the row is bad or has nothing but −∞.
__global__ void __launch_bounds__(32) argmax_kernel(const Key* keys, int parts, std::int32_t* out) {
  pdl_trigger();
  pdl_wait();
  const int lane = lane_index();
  const Key key = warp_max(lane < parts ? keys[static_cast<int>(blockIdx.x) * parts + lane] : 0);
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  const bool finite =
      ordered > 0x007fffffu && ordered < 0xff800000u;  // beyond the keys of −∞ and +∞
  const auto index = static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(key));
  if (lane == 0) out[blockIdx.x] = finite ? index : -1;
}

}  // namespace

void argmax(ExecContext& ctx, const ArgmaxArgs& args) {
  const TensorView& logits = args.logits;
  const std::int64_t rows = logits.rows();
  if (rows == 0) return;
  const auto vocab = static_cast<int>(logits.columns());
  const bool fours = allows_vector_access(logits, 4);
  // Two CTAs a multiprocessor, but no more than give each thread one vector load.
  const int wanted = static_cast<int>(
      ceil_div<std::int64_t>(std::int64_t{2} * cuda_device(ctx).facts().multiprocessors, rows));
  const int useful = ceil_div(vocab, kThreads * 4);
  const int most = std::clamp(wanted, 1, std::min(kArgmaxParts, useful));
  const int part_size = ceil_div(ceil_div(vocab, most), 4) * 4;
  const int parts = ceil_div(vocab, part_size);
  const ArenaScope scope(*ctx.scratch);
  Key* keys = ctx.scratch->take(DType::kI64, {rows, parts}).as<Key>();
  const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(rows));
  with_pack_size(fours, [&]<int kPack>(std::integral_constant<int, kPack>) {
    launch(shape_of(ctx, grid, dim3(kThreads)), argmax_parts_kernel<kPack>,
           rows_of<const float>(logits), vocab, part_size, keys);
  });
  launch(shape_of(ctx, dim3(static_cast<unsigned>(rows)), dim3(32)), argmax_kernel, keys, parts,
         args.out);
}

}  // namespace bl::cuda
