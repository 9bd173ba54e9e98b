#include <algorithm>

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/moe/moe_ops.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kMaxExperts = 4096;  // as many as static shared memory can hold
constexpr int kSharedBytes = 48 * 1024;
constexpr int kMaxWarps = 4;

struct RouteParameters {
  Rows<const float> logits;
  const float* selection_bias;  // may be null
  const float* expert_scale;    // may be null
  RouteKind kind;
  bool normalize;
  float multiplier;
  float normalize_power;
  int group_count;
  int group_top;
  std::int32_t* chosen;  // [tokens, k]
  Rows<float> weights;
  std::int64_t tokens;
  int experts;
  int k;
};

// The working memory of one token in shared memory.
struct Scores {
  float* affinity;   // [experts] becomes the weight
  float* selection;  // [experts] decides the choice; only where groups are chosen first
  float* groups;     // [group_count]
};

// What a lane holds of experts lane, lane + 32, …, in registers: a step waits for this one warp, so
// its loads and functions must overlap. Experts that do not exist have key 0.
template <int kHeld>
struct LaneScores {
  float logit[kHeld];
  float affinity[kHeld];
  std::uint32_t key[kHeld];
};

// Better scores have greater keys, and no key is 0. NaN wins over all, so that it shows up in the
// result.
__device__ __forceinline__ std::uint32_t key_of(float score) {
  std::uint32_t bits = __float_as_uint(score + 0.0f);
  if (isnan(score)) bits = 0x7fc00000u;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ bool is_softmax(RouteKind kind) {
  return kind == RouteKind::kSoftmax || kind == RouteKind::kSoftmaxTopK;
}

// Calls f(i, expert) for each expert of this lane.
template <int kHeld, class F>
__device__ __forceinline__ void each_expert(const RouteParameters& p, const F& f) {
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int expert = lane_index() + 32 * i;
    if (expert < p.experts) f(i, expert);
  }
}

template <int kHeld>
__device__ __forceinline__ void fill_affinity(const RouteParameters& p, LaneScores<kHeld>& mine) {
  if (!is_softmax(p.kind)) {
    each_expert<kHeld>(p, [&](int i, int) {
      const float x = mine.logit[i];
      // Accurate functions, since close scores are compared.
      mine.affinity[i] = p.kind == RouteKind::kSigmoid
                             ? exact_div(1.0f, 1.0f + expf(-x))
                             : sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
    });
    return;
  }
  float top = -INFINITY;
  each_expert<kHeld>(p, [&](int i, int) { top = fmaxf(top, mine.logit[i]); });
  top = warp_max(top);
  float total = 0.0f;
  each_expert<kHeld>(p, [&](int i, int) {
    mine.affinity[i] = expf(mine.logit[i] - top);
    total += mine.affinity[i];
  });
  total = warp_sum(total);
  each_expert<kHeld>(p, [&](int i, int) { mine.affinity[i] = exact_div(mine.affinity[i], total); });
}

// Returns what decides the choice of a lane's expert i.
template <int kHeld>
__device__ __forceinline__ float selection_of(const RouteParameters& p,
                                              const LaneScores<kHeld>& mine, int i, int expert) {
  // Softmax has the order of the logits, which cannot underflow.
  const bool by_logits = is_softmax(p.kind) && p.selection_bias == nullptr;
  const float plain = by_logits ? mine.logit[i] : mine.affinity[i];
  return p.selection_bias != nullptr ? plain + p.selection_bias[expert] : plain;
}

// Excludes the experts outside the best groups, ranked by the sum of their two best scores, however
// negative the scores inside are; of equal groups the lower one wins.
__device__ void keep_best_groups(const RouteParameters& p, const Scores& s) {
  const int lane = lane_index();
  const int size = p.experts / p.group_count;
  __syncwarp();
  for (int g = lane; g < p.group_count; g += 32) {
    float best = -INFINITY;
    float second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float score = s.selection[e];
      second = score > best ? best : fmaxf(second, score);
      best = score > best ? score : best;
    }
    s.groups[g] = size > 1 ? best + second : best;
  }
  __syncwarp();
  for (int g = lane; g < p.group_count; g += 32) {
    int better = 0;
    for (int other = 0; other < p.group_count; ++other) {
      better += s.groups[other] > s.groups[g] || (s.groups[other] == s.groups[g] && other < g);
    }
    if (better < p.group_top) continue;
    for (int e = g * size; e < (g + 1) * size; ++e) s.selection[e] = -INFINITY;
  }
  __syncwarp();
}

__device__ __forceinline__ float divisor_of(const RouteParameters& p, float total) {
  if (p.normalize_power > 0.0f) return powf(total, 1.0f / p.normalize_power);
  if (p.kind == RouteKind::kSoftmaxTopK) return total;
  return p.normalize && p.kind != RouteKind::kSoftmax ? total + 1e-20f : 1.0f;
}

// The best of a lane's experts that are not chosen yet; of equal scores the lower index wins.
struct Best {
  std::uint32_t key = 0;
  std::uint32_t expert = 0xffffffffu;
};
template <int kHeld>
__device__ __forceinline__ Best best_of_lane(const LaneScores<kHeld>& mine) {
  Best best;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (mine.key[i] > best.key) {
      best = {mine.key[i], static_cast<std::uint32_t>(lane_index() + 32 * i)};
    }
  }
  return best;
}

template <int kHeld>
__device__ void choose(const RouteParameters& p, const Scores& s, LaneScores<kHeld>& mine,
                       std::int64_t t) {
  const int lane = lane_index();
  std::int32_t* chosen = p.chosen + t * p.k;
  float* weights = p.weights[t];
  float total = 0.0f;  // of the weights, or of their powers
  // The choice that this lane keeps: a step waits for what it would read back from memory.
  std::int32_t own_expert = 0;
  float own_weight = 0.0f;
  Best best = best_of_lane(mine);
  __syncwarp();
  for (int j = 0; j < p.k; ++j) {
    const std::uint32_t key = warp_max(best.key);
    const std::uint32_t expert = ~warp_max(best.key == key ? ~best.expert : 0u);
    const float weight = s.affinity[expert];
    total += p.normalize_power > 0.0f ? powf(fabsf(weight), p.normalize_power) : weight;
    if (lane == j) {
      own_expert = static_cast<std::int32_t>(expert);
      own_weight = weight;
    } else if (j >= 32 && lane == j % 32) {
      chosen[j] = static_cast<std::int32_t>(expert);
      weights[j] = weight;
    }
    if (best.expert == expert) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        if (expert / 32 == static_cast<std::uint32_t>(i)) mine.key[i] = 0;
      }
      best = best_of_lane(mine);
    }
    __syncwarp();
  }
  const float factor = exact_div(p.multiplier, divisor_of(p, total));
  const auto scaled = [&](std::int32_t expert, float weight) {
    weight *= factor;
    return p.expert_scale != nullptr ? weight * p.expert_scale[expert] : weight;
  };
  if (lane < p.k) {
    chosen[lane] = own_expert;
    weights[lane] = scaled(own_expert, own_weight);
  }
  // Each lane reads only what it has written.
  for (int j = lane + 32; j < p.k; j += 32) weights[j] = scaled(chosen[j], weights[j]);
}

// One warp a token.
template <int kHeld>
__global__ void __launch_bounds__(kMaxWarps * 32) route_kernel(RouteParameters p) {
  extern __shared__ float room[];
  pdl_trigger();
  pdl_wait();
  const int warp = warp_index();
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (t >= p.tokens) return;
  float* memory = room + warp * (2 * p.experts + p.group_count);
  const Scores s{memory, memory + p.experts, memory + 2 * p.experts};
  const float* logits = p.logits[t];
  LaneScores<kHeld> mine;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) mine.key[i] = 0;
  each_expert<kHeld>(p, [&](int i, int expert) { mine.logit[i] = logits[expert]; });
  fill_affinity(p, mine);
  each_expert<kHeld>(p, [&](int i, int expert) { s.affinity[expert] = mine.affinity[i]; });
  if (p.group_count > 1) {
    each_expert<kHeld>(
        p, [&](int i, int expert) { s.selection[expert] = selection_of(p, mine, i, expert); });
    keep_best_groups(p, s);
    each_expert<kHeld>(p, [&](int i, int expert) { mine.key[i] = key_of(s.selection[expert]); });
  } else {
    each_expert<kHeld>(
        p, [&](int i, int expert) { mine.key[i] = key_of(selection_of(p, mine, i, expert)); });
  }
  choose(p, s, mine, t);
}

// Returns the kernel for so many experts.
auto* kernel_for(int experts) {
  if (experts <= 32) return route_kernel<1>;
  if (experts <= 64) return route_kernel<2>;
  if (experts <= 128) return route_kernel<4>;
  if (experts <= 256) return route_kernel<8>;
  if (experts <= 512) return route_kernel<16>;
  return route_kernel<kMaxExperts / 32>;
}

}  // namespace

void route(ExecContext& ctx, const RouteArgs& args) {
  const std::int64_t tokens = args.logits.rows();
  if (tokens == 0) return;
  const auto experts = static_cast<int>(args.logits.columns());
  BL_CHECK(experts <= kMaxExperts && args.k <= experts && args.group_count <= experts);
  const int warp_bytes = (2 * experts + args.group_count) * static_cast<int>(sizeof(float));
  const int warps = std::clamp(kSharedBytes / warp_bytes, 1, kMaxWarps);
  const LaunchShape shape =
      shape_of(ctx, dim3(static_cast<unsigned>(ceil_div<std::int64_t>(tokens, warps))),
               dim3(static_cast<unsigned>(warps * 32)),
               static_cast<std::size_t>(warps) * static_cast<std::size_t>(warp_bytes));
  launch(shape, kernel_for(experts),
         RouteParameters{.logits = rows_of<const float>(args.logits),
                         .selection_bias = args.selection_bias.as<const float>(),
                         .expert_scale = args.expert_scale.as<const float>(),
                         .kind = args.kind,
                         .normalize = args.normalize,
                         .multiplier = args.multiplier,
                         .normalize_power = args.normalize_power,
                         .group_count = args.group_count,
                         .group_top = args.group_top,
                         .chosen = args.experts,
                         .weights = rows_of<float>(args.weights),
                         .tokens = tokens,
                         .experts = experts,
                         .k = args.k});
}

}  // namespace bl::cuda
