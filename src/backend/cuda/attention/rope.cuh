#pragma once
// Rotary position embedding (rope) on the device. A CTA first makes a table of (cosine, sine) for
// the pairs of its token, then applies it to the elements of heads.

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "ops/attention.h"

namespace bl::cuda {

// RopeArgs as a kernel parameter. The heads of a token lie side by side in a row of x.
struct RopeParameters {
  Rows<float> x;
  const std::int32_t* positions;
  Rows<const float> inv_freq;
  const float* scale;
  const std::int32_t* variant;
  int heads;
  int head_dim;
  int half;  // pairs that are rotated: rotated / 2
  bool interleaved;
};

inline RopeParameters rope_parameters(const RopeArgs& args) {
  return {.x = rows_of<float>(args.x),
          .positions = args.positions,
          .inv_freq = rows_of<const float>(args.inv_freq),
          .scale = args.scale.as<const float>(),
          .variant = args.variant,
          .heads = static_cast<int>(args.x.shape[1]),
          .head_dim = static_cast<int>(args.x.shape[2]),
          .half = static_cast<int>(args.rotated / 2),
          .interleaved = args.style == RopeStyle::kInterleaved};
}

// Returns (cosine, sine) of an angle of any size. The angle is a float product, as in the models'
// own code. Whole turns are removed in double, which is exact enough: the error is 2⁻⁵³ of some 10⁵
// turns.
__device__ __forceinline__ float2 cos_sin_of(float angle) {
  double turns = static_cast<double>(angle) * 0.15915494309189535;
  turns -= rint(turns);
  float2 turn;
  sincospif(static_cast<float>(turns * 2.0), &turn.y, &turn.x);
  return turn;
}

// Sets table[i] = (cosine, sine) · scale for pair i of token t. All threads of the CTA call; it
// ends with a barrier.
__device__ __forceinline__ void fill_rope_table(const RopeParameters& p, std::int64_t t,
                                                float2* table) {
  const std::int32_t variant = p.variant[t];
  const auto position = static_cast<float>(p.positions[t]);
  const bool usual = variant == 0;
  float scale = p.scale[0];
  if (!usual) scale = p.scale[variant];
  for (int i = static_cast<int>(threadIdx.x); i < p.half; i += static_cast<int>(blockDim.x)) {
    // Loaded before the variant is known, which is 0 as a rule, so that the load does not wait for
    // it.
    float frequency = p.inv_freq[0][i];
    if (!usual) frequency = p.inv_freq[variant][i];
    const float2 turn = cos_sin_of(exact_mul(position, frequency));
    table[i] = {turn.x * scale, turn.y * scale};
  }
  __syncthreads();
}

// The rotated first and second element of the pair (a, b), where `turn` is (cosine, sine). The
// rounding of each step is explicit, so that all kernels give the same bits.
__device__ __forceinline__ float rope_first(float2 turn, float a, float b) {
  return fmaf(-b, turn.y, exact_mul(a, turn.x));
}
__device__ __forceinline__ float rope_second(float2 turn, float a, float b) {
  return fmaf(a, turn.y, exact_mul(b, turn.x));
}

// The indices of the two elements of pair i in a head.
struct PairPlaces {
  int a;
  int b;
};
__device__ __forceinline__ PairPlaces pair_places(const RopeParameters& p, int i) {
  return p.interleaved ? PairPlaces{2 * i, 2 * i + 1} : PairPlaces{i, i + p.half};
}

// Rotates pairs [first, first + 32) of a head in place, one a lane.
__device__ __forceinline__ void rotate_pairs(const RopeParameters& p, const float2* table,
                                             float* head, int first) {
  const int i = first + lane_index();
  if (i >= p.half) return;
  const PairPlaces at = pair_places(p, i);
  const float2 turn = table[i];
  const float a = head[at.a];
  const float b = head[at.b];
  head[at.a] = rope_first(turn, a, b);
  head[at.b] = rope_second(turn, a, b);
}

// An element of a head before it is rotated, together with the other element of its pair. Loading
// is a step of its own, so that many loads can be in flight.
struct RopeInput {
  int pair = -1;  // −1: rope does not change the element
  bool first = true;
  float a = 0.0f;
  float b = 0.0f;
};
__device__ __forceinline__ RopeInput rope_input(const RopeParameters& p, const float* head, int e) {
  if (e >= 2 * p.half) return {-1, true, head[e], 0.0f};
  const bool first = p.interleaved ? e % 2 == 0 : e < p.half;
  const int i = p.interleaved ? e / 2 : first ? e : e - p.half;
  const PairPlaces at = pair_places(p, i);
  return {i, first, head[at.a], head[at.b]};
}
__device__ __forceinline__ float rope_output(const float2* table, const RopeInput& x) {
  if (x.pair < 0) return x.a;
  const float2 turn = table[x.pair];
  return x.first ? rope_first(turn, x.a, x.b) : rope_second(turn, x.a, x.b);
}

// Returns element e of a head after rope.
__device__ __forceinline__ float rotated_element(const RopeParameters& p, const float2* table,
                                                 const float* head, int e) {
  return rope_output(table, rope_input(p, head, e));
}

}  // namespace bl::cuda
