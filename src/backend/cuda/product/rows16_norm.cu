#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/product/rows16.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kMostPacks = 8;  // of four elements, of a thread
constexpr std::int64_t kMostWidth = kMostPacks * 4 * kRows16Threads;

struct NormRows {
  Rows<const float> x;
  const float* weight = nullptr;  // may be null
  const float* bias = nullptr;    // may be null
  Rows16 to;
  int width = 0;
  float eps = 0.0f;
  float offset = 0.0f;  // 1 where weight means (1 + weight)
  bool centred = false;
  float multiplier = 1.0f;
  float* alpha = nullptr;
};

__device__ __forceinline__ float largest_of(const Pack<float, 4>& pack) {
  return fmaxf(fmaxf(fabsf(pack.at[0]), fabsf(pack.at[1])),
               fmaxf(fabsf(pack.at[2]), fabsf(pack.at[3])));
}

__device__ __forceinline__ Pack<float, 4> weights_at(const NormRows& p, int i) {
  Pack<float, 4> weights{{1.0f, 1.0f, 1.0f, 1.0f}};
  if (p.weight != nullptr) {
    weights = load_pack<4>(p.weight + i);
    for (int e = 0; e < 4; ++e) weights.at[e] += p.offset;
  }
  return weights;
}

// The most that a result of this thread's columns can be.
template <int kPacks>
__device__ __forceinline__ float bound_of_weights(const NormRows& p, int first) {
  const float root = sqrtf(static_cast<float>(p.width));
  float most = 0.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = j * kRows16Threads * 4 + first;
    if (i >= p.width) continue;
    float bound = root * largest_of(weights_at(p, i));
    if (p.bias != nullptr) bound += largest_of(load_pack<4>(p.bias + i));
    most = fmaxf(most, bound);
  }
  return most;
}

// A CTA a row. What is divided by its root mean square (or deviation) is at most √width, so that
// the power of two is known from the weights alone: the same for all rows.
template <int kPacks>
__global__ void __launch_bounds__(kRows16Threads, kPacks <= 4 ? kRows16Ctas : 4)
    norm_rows16_kernel(NormRows p) {
  allow_next();
  __shared__ float parts[2][kRows16Threads / 32];
  __shared__ __align__(16) std::uint16_t staged[kPacks * 4 * kRows16Threads];
  const auto first = static_cast<int>(threadIdx.x) * 4;
  // Read again below, from nearby: registers are what limits how many rows are under way.
  float most = bound_of_weights<kPacks>(p, first);
  dependency_wait();
  const float* row = p.x[blockIdx.x];
  Pack<float, 4> values[kPacks];
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = j * kRows16Threads * 4 + first;
    values[j] = {};
    if (i < p.width) values[j] = load_pack<4>(row + i);
  }
  const float share = 1.0f / static_cast<float>(p.width);
  float mean = 0.0f;
  if (p.centred) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      for (int e = 0; e < 4; ++e) sum += values[j].at[e];
    }
    mean = cta_sum(sum, parts[0]) * share;
    __syncthreads();
  }
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (j * kRows16Threads * 4 + first >= p.width) continue;
    for (int e = 0; e < 4; ++e) {
      const float d = values[j].at[e] - mean;
      squares += d * d;
    }
  }
  most = warp_max(most);
  if (lane_index() == 0) parts[1][warp_index()] = most;  // the sum's barrier is enough for both
  const float inverse = rsqrtf(cta_sum(squares, parts[0]) * share + p.eps);
  most = warp_max(parts[1][lane_index() % (kRows16Threads / 32)]);
  const bool halves = p.to.type == DType::kF16;
  const float power = halves ? power_of_two_for(most, kLargestExponent) : 1.0f;
  if (blockIdx.x == 0 && threadIdx.x == 0) *p.alpha = p.multiplier * power;
  const float reciprocal = 1.0f / power;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = j * kRows16Threads * 4 + first;
    if (i >= p.width) continue;
    const Pack<float, 4> weight = weights_at(p, i);
    Pack<float, 4> bias{};
    if (p.bias != nullptr) bias = load_pack<4>(p.bias + i);
    float y[4];
    for (int e = 0; e < 4; ++e) {
      const float unit = (values[j].at[e] - mean) * inverse;
      y[e] = (unit * weight.at[e] + bias.at[e]) * reciprocal;
    }
    *reinterpret_cast<uint2*>(staged + i) =
        halves ? uint2{pack_halves(y[0], y[1]), pack_halves(y[2], y[3])}
               : uint2{bfloat_pair(y[0], y[1]), bfloat_pair(y[2], y[3])};
  }
  __syncthreads();
  store_row16(staged, p.to, blockIdx.x);
}

}  // namespace

bool takes_norm_rows16(const TensorView& x, const NormArgs& norm) {
  return x.columns() % 8 == 0 && x.columns() <= kMostWidth && takes_packs(x, 4) &&
         array_takes_packs(norm.weight, 4) && array_takes_packs(norm.bias, 4);
}

void make_norm_rows16(ExecContext& ctx, const Rows16Args& args, const NormArgs& norm) {
  BL_CHECK(takes_norm_rows16(args.x, norm) && args.to.slots % 8 == 0);
  NormRows p;
  p.x = rows_of<const float>(args.x);
  p.weight = norm.weight.as<const float>();
  p.bias = norm.bias.as<const float>();
  p.to = args.to;
  p.width = static_cast<int>(args.x.columns());
  p.eps = norm.eps;
  p.offset = norm.unit_offset ? 1.0f : 0.0f;
  p.centred = norm.kind == NormKind::kLayer;
  p.multiplier = args.multiplier;
  p.alpha = args.alpha;
  const LaunchShape shape =
      shape_of(ctx, dim3(static_cast<unsigned>(args.x.rows())), kRows16Threads);
  const int packs = ceil_div(p.width, 4 * kRows16Threads);
  launch(shape,
         packs <= 2   ? norm_rows16_kernel<2>
         : packs <= 4 ? norm_rows16_kernel<4>
                      : norm_rows16_kernel<kMostPacks>,
         p);
}

}  // namespace bl::cuda
