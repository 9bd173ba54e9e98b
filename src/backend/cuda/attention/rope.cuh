#pragma once
// Rotary positions on the device: a table of turns a token, shared by the CTA, then its use on
// pairs of elements.

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "ops/attention.h"

namespace bl::cuda {

// RopeArgs as kernels get it; heads of x lie side by side in a row.
struct RopeParameters {
  Rows<float> x;
  const std::int32_t* positions;
  Rows<const float> inv_freq;
  const float* scale;
  const std::int32_t* variant;
  int heads;
  int head_dim;
  int half;  // pairs that turn
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

// Cosine and sine of an angle of any size, the angle a float product as in the models' own code. In
// double the whole turns go away exactly enough: 2⁻⁵³ of some 10⁵ turns.
__device__ __forceinline__ float2 turn_of(float angle) {
  double turns = static_cast<double>(angle) * 0.15915494309189535;
  turns -= rint(turns);
  float2 turn;
  sincospif(static_cast<float>(turns * 2.0), &turn.y, &turn.x);
  return turn;
}

// table[i] = (cos, sin) · scale of pair i of token t, by all threads of the CTA; a barrier follows.
__device__ __forceinline__ void fill_turns(const RopeParameters& p, std::int64_t t, float2* table) {
  const std::int32_t variant = p.variant[t];
  const auto position = static_cast<float>(p.positions[t]);
  const bool usual = variant == 0;
  float scale = p.scale[0];
  if (!usual) scale = p.scale[variant];
  for (int i = static_cast<int>(threadIdx.x); i < p.half; i += static_cast<int>(blockDim.x)) {
    // Asked for before it is known which one it must be.
    float frequency = p.inv_freq[0][i];
    if (!usual) frequency = p.inv_freq[variant][i];
    const float2 turn = turn_of(exact_mul(position, frequency));
    table[i] = {turn.x * scale, turn.y * scale};
  }
  __syncthreads();
}

// The first and the second of a pair, turned; spelled out, so that every kernel rounds alike.
__device__ __forceinline__ float turned_first(float2 turn, float a, float b) {
  return fmaf(-b, turn.y, exact_mul(a, turn.x));
}
__device__ __forceinline__ float turned_second(float2 turn, float a, float b) {
  return fmaf(a, turn.y, exact_mul(b, turn.x));
}

// Places of pair i in a head.
struct PairPlaces {
  int a;
  int b;
};
__device__ __forceinline__ PairPlaces pair_places(const RopeParameters& p, int i) {
  return p.interleaved ? PairPlaces{2 * i, 2 * i + 1} : PairPlaces{i, i + p.half};
}

// Pairs [first, first + 32) of a head, one a lane, in place.
__device__ __forceinline__ void rotate_pairs(const RopeParameters& p, const float2* table,
                                             float* head, int first) {
  const int i = first + lane_index();
  if (i >= p.half) return;
  const PairPlaces at = pair_places(p, i);
  const float2 turn = table[i];
  const float a = head[at.a];
  const float b = head[at.b];
  head[at.a] = turned_first(turn, a, b);
  head[at.b] = turned_second(turn, a, b);
}

// Element e of a head before it is rotated, with the other of its pair: loaded by itself, so that
// many loads are under way.
struct UnturnedElement {
  int pair = -1;  // −1: does not turn
  bool first = true;
  float a = 0.0f;
  float b = 0.0f;
};
__device__ __forceinline__ UnturnedElement unturned_element(const RopeParameters& p,
                                                            const float* head, int e) {
  if (e >= 2 * p.half) return {-1, true, head[e], 0.0f};
  const bool first = p.interleaved ? e % 2 == 0 : e < p.half;
  const int i = p.interleaved ? e / 2 : first ? e : e - p.half;
  const PairPlaces at = pair_places(p, i);
  return {i, first, head[at.a], head[at.b]};
}
__device__ __forceinline__ float turned(const float2* table, const UnturnedElement& x) {
  if (x.pair < 0) return x.a;
  const float2 turn = table[x.pair];
  return x.first ? turned_first(turn, x.a, x.b) : turned_second(turn, x.a, x.b);
}

// Element e of a head as it is once rotated.
__device__ __forceinline__ float rotated_element(const RopeParameters& p, const float2* table,
                                                 const float* head, int e) {
  return turned(table, unturned_element(p, head, e));
}

}  // namespace bl::cuda
