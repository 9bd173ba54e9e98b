#include <algorithm>

#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/activations/pack_activations.h"
#include "backend/cuda/gemm/activations/staged_input.h"
#include "backend/cuda/layout/code_fragments.cuh"

namespace bl::cuda {
namespace {

// CTAs are large and few: the cost of a row is reading it, and every CTA of a row reads all of it
// (bench/ladder/gemm_skinny.md).
constexpr int kThreads = 1024;
// K elements that a thread packs at a time: eight bytes of one token's fragments.
constexpr int kItemElements = 4;
constexpr int kKStepItems = kKStepSize / kItemElements;
// A normalised value is at most sqrt(in) · the largest weight: that bound is scaled to [2^14,
// 2^15), which binary16 holds.
constexpr int kBoundExponent = 14;

struct PackLaunch {
  FragmentTarget targets[kMaxMatrices];
  const float* x = nullptr;
  std::int64_t stride = 0;
  const float* partials = nullptr;  // [partial_count][tokens][in], added to x
  int partial_count = 0;
  float* x_sum = nullptr;  // where the sum is stored, or null
  std::int64_t sum_stride = 0;
  int in = 0;
  int tokens = 0;
  int tile = 0;
  bool sums = false;
  float* row_scales = nullptr;
  InputNorm norm;
  bool encode_row_scales = false;
  float* zeros = nullptr;
  int zero_count = 0;
  bool aligned = false;  // rows start at multiples of 16 bytes, and have whole float4s
  int row_floats = 0;    // of the row in shared memory, padded
};

__device__ __forceinline__ float weight_of(const PackLaunch& p, int feature) {
  return p.norm.weight == nullptr ? 1.0f : p.norm.weight[feature] + p.norm.unit_offset;
}

// Four elements of a k_step, two pairs of adjacent k, in fragment order.
struct Item {
  int features[kItemElements];   // p.in: none
  float weights[kItemElements];  // of the norm
};

// The position of item `i` in a target.
struct ItemIndex {
  int k_step;
  int number;  // in the k_step
  BL_HD constexpr explicit ItemIndex(int i) : k_step(i / kKStepItems), number(i % kKStepItems) {}
  // Codes of these k arrive multiplied by 16, so activations are stored divided by 16.
  BL_HD constexpr bool upper() const { return number % 2 != 0; }
  BL_HD constexpr int first_k() const { return number % 2 * 16 + number / 2 * 2; }
  static constexpr int kPairDistance = 8;  // k from the first pair to the second
  // Returns the index in 8 bytes from the target's fragments; `tokens`: of the tile.
  BL_HD constexpr int at(int token, int tokens) const {
    return (k_step * tokens + token) * kKStepItems + number;
  }
};

// Checks that items in order are the inverse of fragment_offset().
constexpr bool matches_fragment_offset() {
  for (int i = 0; i < kKStepItems; ++i) {
    for (int k = 0; k < kItemElements; ++k) {
      const int element_k = ItemIndex(i).first_k() + k / 2 * ItemIndex::kPairDistance;
      if (fragment_offset(element_k + k % 2) != i * kItemElements + k) return false;
    }
  }
  return true;
}
static_assert(matches_fragment_offset());

template <bool kNormalise>
__device__ __forceinline__ Item load_item(const PackLaunch& p, const FragmentTarget& target,
                                          int i) {
  Item item;
  const ItemIndex place(i);
  const bool there = place.k_step < target.k_steps;
  const int* from = target.feature_of_k + place.k_step * kKStepSize + place.first_k();
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    int2 pair = make_int2(-1, -1);
    if (there) {
      pair = __ldg(reinterpret_cast<const int2*>(from + k * ItemIndex::kPairDistance));
    }
    item.features[2 * k] = pair.x;
    item.features[2 * k + 1] = pair.y;
  }
#pragma unroll
  for (int k = 0; k < kItemElements; ++k) {
    const bool used = item.features[k] >= 0;
    item.weights[k] = kNormalise && used ? weight_of(p, item.features[k]) : 1.0f;
    if (!used) item.features[k] = p.in;
  }
  return item;
}

// Returns the largest weight of the norm to all threads.
__device__ __forceinline__ float largest_weight(const PackLaunch& p, float* warp_partials) {
  float largest = p.norm.weight == nullptr ? 1.0f : 0.0f;
  if (p.norm.weight != nullptr) {
    for (int i = static_cast<int>(threadIdx.x); i < p.in; i += kThreads) {
      largest = fmaxf(largest, fabsf(weight_of(p, i)));
    }
  }
  largest = cta_max(largest, warp_partials);
  __syncthreads();
  return largest;
}

// A CTA's row: read once in the order of features, then looked up in the order of k. kShared: it
// fits into shared memory.
template <bool kNormalise, bool kShared>
class Row {
 public:
  __device__ __forceinline__ Row(const PackLaunch& p, float* memory)
      : p_(p), memory_(memory), row_(p.x + static_cast<int>(blockIdx.y) * p.stride) {}

  // Reads the row. Returns this thread's statistic: with a norm Σx², else the largest |x|.
  __device__ __forceinline__ float read() {
    // Feature `in` is zero, for k without a feature.
    if (kShared && threadIdx.x == 0) memory_[p_.in] = 0.0f;
    if (!p_.aligned) {
      for (int i = static_cast<int>(threadIdx.x); i < p_.in; i += kThreads) {
        const float x = value_at(i);
        add(x);
        if (stores_sum()) sum_row()[i] = x;
        if constexpr (kShared) memory_[i] = x;
      }
      return statistic_;
    }
    int at = static_cast<int>(threadIdx.x) * 4;
    if (kNormalise && p_.partial_count > 0) {
#pragma unroll 1
      for (; at < p_.in; at += kRound) read_with_partials(at);
      return statistic_;
    }
    int left = p_.in;
#pragma unroll 1
    for (; left > kRound; left -= kHeld * kRound, at += kHeld * kRound) read_rounds<kHeld>(at);
    if (left > 0) read_rounds<1>(at);
    return statistic_;
  }

  __device__ __forceinline__ float value(int feature) const {
    if constexpr (kShared) return memory_[feature];
    return feature < p_.in ? value_at(feature) : 0.0f;
  }

 private:
  static constexpr int kRound = 4 * kThreads;  // elements, a float4 a thread
  static constexpr int kHeld = 4;              // float4s of a thread in flight

  // Returns this row of a k_split's partial sums.
  __device__ __forceinline__ const float* partial(int number) const {
    return p_.partials + (number * p_.tokens + static_cast<int>(blockIdx.y)) * std::int64_t{p_.in};
  }
  __device__ __forceinline__ float value_at(int feature) const {
    float x = __ldcg(row_ + feature);
    if constexpr (kNormalise) {
      for (int r = 0; r < p_.partial_count; ++r) x += __ldcg(partial(r) + feature);
    }
    return x;
  }
  // All CTAs of a row compute its whole sum: each stores what some of its warps have.
  __device__ __forceinline__ bool stores_sum() const {
    return kNormalise && p_.x_sum != nullptr &&
           warp_index() % (gridDim.x * gridDim.z) == blockIdx.z * gridDim.x + blockIdx.x;
  }
  __device__ __forceinline__ float* sum_row() const {
    return p_.x_sum + static_cast<int>(blockIdx.y) * p_.sum_stride;
  }
  __device__ __forceinline__ void add(float x) {
    statistic_ = kNormalise ? statistic_ + x * x : fmaxf(statistic_, fabsf(x));
  }
  template <int kRounds>
  __device__ __forceinline__ void read_rounds(int at) {
    float4 values[kRounds];
#pragma unroll
    for (int k = 0; k < kRounds; ++k) {
      values[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      // L2 only (ld.cg): L1 may hold data from before the launch in front.
      if (at + k * kRound < p_.in) {
        values[k] = __ldcg(reinterpret_cast<const float4*>(row_ + at + k * kRound));
      }
    }
#pragma unroll
    for (int k = 0; k < kRounds; ++k) {
      const float4& v = values[k];
      add(v.x), add(v.y), add(v.z), add(v.w);
      if (kShared && at + k * kRound < p_.in) {
        *reinterpret_cast<float4*>(memory_ + at + k * kRound) = v;
      }
    }
  }

  // Four partial sums at a time are in flight together.
  __device__ __forceinline__ void read_with_partials(int at) {
    constexpr int kAtOnce = 4;
    float4 v = __ldcg(reinterpret_cast<const float4*>(row_ + at));
#pragma unroll 1
    for (int first = 0; first < p_.partial_count; first += kAtOnce) {
      float4 more[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        more[r] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (first + r < p_.partial_count) {
          more[r] = __ldcg(reinterpret_cast<const float4*>(partial(first + r) + at));
        }
      }
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        v.x += more[r].x, v.y += more[r].y, v.z += more[r].z, v.w += more[r].w;
      }
    }
    add(v.x), add(v.y), add(v.z), add(v.w);
    if constexpr (kShared) *reinterpret_cast<float4*>(memory_ + at) = v;
    if (stores_sum()) *reinterpret_cast<float4*>(sum_row() + at) = v;
  }

  const PackLaunch& p_;
  float* memory_;
  const float* row_;
  float statistic_ = 0.0f;
};

// Returns what values are multiplied by, to all threads. Its barriers also complete the row in
// shared memory.
template <bool kNormalise>
__device__ __forceinline__ float find_factor(const PackLaunch& p, float statistic,
                                             float most_weight, float* warp_partials) {
  float factor = 1.0f;
  float largest;
  if constexpr (kNormalise) {
    factor = rsqrtf(cta_sum(statistic, warp_partials) / static_cast<float>(p.in) + p.norm.eps);
    largest = sqrtf(static_cast<float>(p.in)) * most_weight;
  } else {
    largest = cta_max(statistic, warp_partials);
  }
  const float power = power_of_two_for(largest, kNormalise ? kBoundExponent : kInputExponent);
  if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.z == 0) {
    p.row_scales[blockIdx.y] = p.encode_row_scales ? encoded_row_scale(power) : power;
  }
  return factor / power;
}

// The position of the CTA's token among the tiles of tokens.
struct RowInTile {
  int token;   // of its tile
  int tile;    // its first token
  int tokens;  // of the tile
  __device__ __forceinline__ explicit RowInTile(const PackLaunch& p) {
    const auto number = static_cast<int>(blockIdx.y);
    tile = number / p.tile * p.tile;
    token = number - tile;
    tokens = min(p.tile, p.tokens - tile);
  }
};

// Stores an item where the GEMM reads it. `sums`: null, or where Σx of each k_step goes.
template <bool kNormalise, class AnyRow>
__device__ __forceinline__ void store_item(const PackLaunch& p, const FragmentTarget& target,
                                           const AnyRow& row, float factor, const Item& item, int i,
                                           float* sums) {
  const ItemIndex place(i);
  const RowInTile to(p);
  const bool upper = place.upper();
  const bool there = place.k_step < target.k_steps;
  const float scaled_factor = upper ? factor * (1.0f / 16.0f) : factor;
  __half2 halves[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    float pair[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float x = row.value(item.features[2 * k + e]);
      pair[e] = (kNormalise ? x * item.weights[2 * k + e] : x) * scaled_factor;
    }
    halves[k] = __floats2half2_rn(pair[0], pair[1]);
  }
  auto* fragments = reinterpret_cast<uint2*>(
      target.fragments + std::int64_t{to.tile} * target.k_steps * (kKStepSize / 2));
  if (there) {
    fragments[place.at(to.token, to.tokens)] = *reinterpret_cast<const uint2*>(halves);
  }
  if (sums == nullptr) return;
  const float2 low = __half22float2(halves[0]);
  const float2 high = __half22float2(halves[1]);
  float sum = ((low.x + low.y) + (high.x + high.y)) * (upper ? 16.0f : 1.0f);
#pragma unroll
  for (int distance = kKStepItems / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  if (there && place.number == 0) sums[place.k_step] = sum;
}

__device__ __forceinline__ uint4 load_k_block(const FragmentTarget& target, int number) {
  if (number >= target.k_block_count) return make_uint4(0, 0, 0, 0);
  return __ldg(reinterpret_cast<const uint4*>(target.k_blocks) + number);
}

// Stores Σx of each k_block, from the sums of its k_steps. `k_block`: this thread's first one.
__device__ __forceinline__ void store_k_block_sums(const PackLaunch& p,
                                                   const FragmentTarget& target, uint4 k_block,
                                                   const float* sums) {
  const RowInTile to(p);
  const int columns = sum_columns(to.tokens);
  __syncthreads();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < target.k_block_count;
       i += kThreads, k_block = load_k_block(target, i)) {
    const int first = static_cast<int>(k_block.z & 0xffffu);
    const int k_steps = static_cast<int>(k_block.w >> 8 & 0xffu);
    float sum = 0.0f;
    for (int u = 0; u < k_steps; ++u) sum += sums[first + u];
    target.k_block_sums[to.tile * target.k_steps + first * columns + to.token] = sum * kCodeOne;
  }
}

// A CTA packs a row for one target, or a part of it.
template <bool kNormalise, bool kShared>
__global__ void __launch_bounds__(kThreads, 1)
    pack_activations_kernel(const __grid_constant__ PackLaunch p) {
  extern __shared__ __align__(16) float memory[];
  __shared__ float warp_partials[kThreads / 32];
  pdl_trigger();
  Row<kNormalise, kShared> row(p, memory);
  const FragmentTarget& target = p.targets[blockIdx.z];
  const int first = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int step = static_cast<int>(gridDim.x) * kThreads;
  // The items and weights depend on no activations, so they are loaded before the wait.
  constexpr int kAhead = kNormalise ? 2 : 4;
  Item items[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) items[k] = load_item<kNormalise>(p, target, first + k * step);
  const uint4 k_block = p.sums ? load_k_block(target, first) : make_uint4(0, 0, 0, 0);
  const float most_weight = kNormalise ? largest_weight(p, warp_partials) : 0.0f;
  pdl_wait();
  const float statistic = row.read();
  if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0) {
    for (int i = first; i < p.zero_count; i += kThreads) p.zeros[i] = 0.0f;
  }
  const float factor = find_factor<kNormalise>(p, statistic, most_weight, warp_partials);
  float* sums = p.sums ? memory + (kShared ? p.row_floats : 0) : nullptr;
  // Whole warps iterate together: their lanes add up k_steps.
  const int count = (target.k_steps * kKStepItems + 31) / 32 * 32;
  int i = first;
#pragma unroll
  for (int k = 0; k < kAhead; ++k, i += step) {
    if (i < count) store_item<kNormalise>(p, target, row, factor, items[k], i, sums);
  }
#pragma unroll 1
  for (; i < count; i += step) {
    store_item<kNormalise>(p, target, row, factor, load_item<kNormalise>(p, target, i), i, sums);
  }
  if (sums != nullptr) store_k_block_sums(p, target, k_block, sums);
}

using PackKernel = void (*)(PackLaunch);

PackKernel kernel_of(bool normalise, bool fits) {
  if (normalise)
    return fits ? pack_activations_kernel<true, true> : pack_activations_kernel<true, false>;
  return fits ? pack_activations_kernel<false, true> : pack_activations_kernel<false, false>;
}

}  // namespace

void pack_activations(ExecContext& ctx, const PackActivationsArgs& args) {
  PackLaunch p;
  int k_steps = 0;
  for (int i = 0; i < args.count; ++i) {
    p.targets[i] = args.targets[i];
    k_steps = std::max(k_steps, args.targets[i].k_steps);
  }
  p.x = args.x.as<const float>();
  p.stride = args.x.row_stride;
  BL_CHECK(args.partials.empty() || args.norm.present);
  p.partials = args.partials.as<const float>();
  p.partial_count = static_cast<int>(args.partials.rows());
  if (!args.partials.empty()) p.x_sum = args.x_sum.as<float>();
  p.sum_stride = args.x_sum.row_stride;
  p.in = static_cast<int>(args.x.columns());
  p.tokens = static_cast<int>(args.x.rows());
  p.tile = args.tile;
  p.sums = args.sums;
  p.row_scales = args.row_scales;
  p.encode_row_scales = args.encode_row_scales;
  p.norm = args.norm;
  p.zeros = args.zeros;
  p.zero_count = args.zero_count;
  p.aligned = is_aligned(p.x, 16) && is_aligned(p.partials, 16) && is_aligned(p.x_sum, 16) &&
              p.stride % 4 == 0 && p.sum_stride % 4 == 0 && p.in % 4 == 0;
  p.row_floats = (p.in + 4) / 4 * 4;
  // The kernel has some static shared memory.
  const std::size_t room = cuda_device(ctx).facts().shared_bytes_per_cta - 256;
  const std::size_t sum_bytes = static_cast<std::size_t>(p.sums ? k_steps : 0) * sizeof(float);
  const std::size_t row_bytes = static_cast<std::size_t>(p.row_floats) * sizeof(float);
  const bool fits = row_bytes + sum_bytes <= room;
  const PackKernel kernel = kernel_of(args.norm.present, fits);
  const std::size_t dynamic = (fits ? row_bytes : 0) + sum_bytes;
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(dynamic)));
  const auto rows = static_cast<unsigned>(p.tokens);
  const int ctas = std::max(pack_ctas(1, p.sums) / args.count, 1);
  const dim3 grid(static_cast<unsigned>(ctas), rows, static_cast<unsigned>(args.count));
  launch(shape_of(ctx, grid, kThreads, dynamic), kernel, p);
}

}  // namespace bl::cuda
