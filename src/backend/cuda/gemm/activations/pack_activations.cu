#include <algorithm>

#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/activations/pack_activations.h"
#include "backend/cuda/gemm/activations/staged_input.h"
#include "backend/cuda/layout/code_fragments.cuh"

namespace bl::cuda {
namespace {

// CTAs are large and few: what a row costs is reading it, and every CTA of a row reads all of it
// (bench/ladder/few_tokens).
constexpr int kThreads = 1024;
// Slots that a thread makes ready at a time: eight bytes of a token's.
constexpr int kItemElements = 4;
constexpr int kKStepItems = kKStepSize / kItemElements;
// What a norm leaves is at most sqrt(in) times its largest weight: that comes to
// [2^14, 2^15), which binary16 holds.
constexpr int kBoundExponent = 14;

struct PackLaunch {
  FragmentTarget targets[kMaxMatrices];
  const float* x = nullptr;
  std::int64_t stride = 0;
  const float* partials = nullptr;  // [rest_count][tokens][in], added to x
  int rest_count = 0;
  float* x_sum = nullptr;  // where their sum is left, or null
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
  int row_floats = 0;    // of the row in shared memory
};

__device__ __forceinline__ float weight_of(const PackLaunch& p, int feature) {
  return p.norm.weight == nullptr ? 1.0f : p.norm.weight[feature] + p.norm.unit_offset;
}

// Four slots of a unit, two pairs of neighbours, in the order in which they lie.
struct Item {
  int features[kItemElements];   // p.in where there is none
  float weights[kItemElements];  // of a norm
};

// Where item i of a target begins.
struct ItemIndex {
  int k_step;
  int number;  // within the unit
  BL_HD constexpr explicit ItemIndex(int i) : k_step(i / kKStepItems), number(i % kKStepItems) {}
  // Its slots lie 16 times too large.
  BL_HD constexpr bool upper() const { return number % 2 != 0; }
  BL_HD constexpr int first_k() const { return number % 2 * 16 + number / 2 * 2; }
  static constexpr int kPairDistance = 8;  // from the first pair's slot to the second's
  // In units of 8 bytes, from the target's fragments; `tokens`: of the tile.
  BL_HD constexpr int at(int token, int tokens) const {
    return (k_step * tokens + token) * kKStepItems + number;
  }
};

// Items in order are fragment_offset the other way round.
constexpr bool follows_fragment_place() {
  for (int i = 0; i < kKStepItems; ++i) {
    for (int k = 0; k < kItemElements; ++k) {
      const int element_k = ItemIndex(i).first_k() + k / 2 * ItemIndex::kPairDistance;
      if (fragment_offset(element_k + k % 2) != i * kItemElements + k) return false;
    }
  }
  return true;
}
static_assert(follows_fragment_place());

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

// The largest weight of a norm. All threads get it.
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

// A CTA's row: read once, by neighbouring channels, then looked up slot by slot. kShared: it fits
// in shared memory.
template <bool kNormalise, bool kShared>
class Row {
 public:
  __device__ __forceinline__ Row(const PackLaunch& p, float* memory)
      : p_(p), memory_(memory), row_(p.x + static_cast<int>(blockIdx.y) * p.stride) {}

  // Reads it. Returns what this thread learns of it: with a norm Σx², else the largest |x|.
  __device__ __forceinline__ float read() {
    // Channel `in` is zero.
    if (kShared && threadIdx.x == 0) memory_[p_.in] = 0.0f;
    if (!p_.aligned) {
      for (int i = static_cast<int>(threadIdx.x); i < p_.in; i += kThreads) {
        const float x = value_at(i);
        add(x);
        if (leaves_sum()) sum_row()[i] = x;
        if constexpr (kShared) memory_[i] = x;
      }
      return fact_;
    }
    int at = static_cast<int>(threadIdx.x) * 4;
    if (kNormalise && p_.rest_count > 0) {
#pragma unroll 1
      for (; at < p_.in; at += kRound) read_with_partials(at);
      return fact_;
    }
    int left = p_.in;
#pragma unroll 1
    for (; left > kRound; left -= kHeld * kRound, at += kHeld * kRound) read_rounds<kHeld>(at);
    if (left > 0) read_rounds<1>(at);
    return fact_;
  }

  __device__ __forceinline__ float value(int feature) const {
    if constexpr (kShared) return memory_[feature];
    return feature < p_.in ? value_at(feature) : 0.0f;
  }

 private:
  static constexpr int kRound = 4 * kThreads;  // elements, a float4 a thread
  static constexpr int kHeld = 4;              // float4s of a thread under way at once

  // Of the rests' rows.
  __device__ __forceinline__ const float* partial(int number) const {
    return p_.partials + (number * p_.tokens + static_cast<int>(blockIdx.y)) * std::int64_t{p_.in};
  }
  __device__ __forceinline__ float value_at(int feature) const {
    float x = __ldcg(row_ + feature);
    if constexpr (kNormalise) {
      for (int r = 0; r < p_.rest_count; ++r) x += __ldcg(partial(r) + feature);
    }
    return x;
  }
  // All CTAs of a row have all of its sum: each leaves what some of its warps have.
  __device__ __forceinline__ bool leaves_sum() const {
    return kNormalise && p_.x_sum != nullptr &&
           warp_index() % (gridDim.x * gridDim.z) == blockIdx.z * gridDim.x + blockIdx.x;
  }
  __device__ __forceinline__ float* sum_row() const {
    return p_.x_sum + static_cast<int>(blockIdx.y) * p_.sum_stride;
  }
  __device__ __forceinline__ void add(float x) {
    fact_ = kNormalise ? fact_ + x * x : fmaxf(fact_, fabsf(x));
  }
  template <int kRounds>
  __device__ __forceinline__ void read_rounds(int at) {
    float4 values[kRounds];
#pragma unroll
    for (int k = 0; k < kRounds; ++k) {
      values[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      // Past the first level of the cache, which knows nothing of the kernel before.
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

  // Rests of four at a time are on their way together.
  __device__ __forceinline__ void read_with_partials(int at) {
    constexpr int kAtOnce = 4;
    float4 v = __ldcg(reinterpret_cast<const float4*>(row_ + at));
#pragma unroll 1
    for (int first = 0; first < p_.rest_count; first += kAtOnce) {
      float4 more[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        more[r] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (first + r < p_.rest_count) {
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
    if (leaves_sum()) *reinterpret_cast<float4*>(sum_row() + at) = v;
  }

  const PackLaunch& p_;
  float* memory_;
  const float* row_;
  float fact_ = 0.0f;
};

// What values are multiplied with. All threads get it; the row is in shared memory then.
template <bool kNormalise>
__device__ __forceinline__ float find_factor(const PackLaunch& p, float fact, float most_weight,
                                             float* warp_partials) {
  float factor = 1.0f;
  float largest;
  if constexpr (kNormalise) {
    factor = rsqrtf(cta_sum(fact, warp_partials) / static_cast<float>(p.in) + p.norm.eps);
    largest = sqrtf(static_cast<float>(p.in)) * most_weight;
  } else {
    largest = cta_max(fact, warp_partials);
  }
  const float power = power_of_two_for(largest, kNormalise ? kBoundExponent : kInputExponent);
  if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.z == 0) {
    p.row_scales[blockIdx.y] = p.encode_row_scales ? encoded_row_scale(power) : power;
  }
  return factor / power;
}

// Where a token's fragments are.
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

// An item to where its product reads it. `sums`: null, or Σx of units.
template <bool kNormalise, class AnyRow>
__device__ __forceinline__ void store_item(const PackLaunch& p, const FragmentTarget& target,
                                           const AnyRow& row, float factor, const Item& item, int i,
                                           float* sums) {
  const ItemIndex place(i);
  const RowInTile to(p);
  const bool upper = place.upper();
  const bool there = place.k_step < target.k_steps;
  const float shrunk = upper ? factor * (1.0f / 16.0f) : factor;
  __half2 halves[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    float pair[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float x = row.value(item.features[2 * k + e]);
      pair[e] = (kNormalise ? x * item.weights[2 * k + e] : x) * shrunk;
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

// Σx of chunks, from those of their units. `chunk`: this thread's first one.
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

// A CTA makes a row ready for one target.
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
  // Weights' data: may be read before the activations are there.
  constexpr int kAhead = kNormalise ? 2 : 4;
  Item items[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) items[k] = load_item<kNormalise>(p, target, first + k * step);
  const uint4 k_block = p.sums ? load_k_block(target, first) : make_uint4(0, 0, 0, 0);
  const float most_weight = kNormalise ? largest_weight(p, warp_partials) : 0.0f;
  pdl_wait();
  const float fact = row.read();
  if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0) {
    for (int i = first; i < p.zero_count; i += kThreads) p.zeros[i] = 0.0f;
  }
  const float factor = find_factor<kNormalise>(p, fact, most_weight, warp_partials);
  float* sums = p.sums ? memory + (kShared ? p.row_floats : 0) : nullptr;
  // Whole warps go round: their lanes add units up together.
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
  p.rest_count = static_cast<int>(args.partials.rows());
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
  // Some is the kernel's own.
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
