#pragma once
// One warp's part of the product of one token or two with packed codes, in whole numbers.
//
// The activations of a chunk are 15-bit numbers times a power of two of their own; a number is two
// digits, 256 · high + low, of a signed byte each. Codes become the bytes of the A operand of
// mma.m16n8k32: those of the slots s = 0 (code_matrix.h) by one mask a register in the lower half
// of k, and in the upper half the bytes as they are, codes of s = 1 times 16 and codes of s = 0.
// The columns of B hold what one token leaves free: 0 and 1 the high and low digits of the slots
// s = 0 in the lower half and zeros in the upper; 2 and 3 those of −x of the slots s = 1 in the
// lower half and of x in the upper, so that the codes of s = 0 go away again. Columns 4 to 7 are
// those of a second token, or repeat them. So lane 4g + t ends with the sums of the slots s = t % 2
// (of token t / 2), exact, and 32-bit sums cannot overflow within a chunk.

#include <type_traits>

#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/gemm/skinny/k_block_mma.cuh"

namespace bl::cuda {

// The largest number of a chunk is below 2^kLimbBits.
inline constexpr int kLimbBits = 14;

// What a token is made of: 128 bytes a unit. First its slots as floats, in the order of
// fragment_offset; then, where these were, digits in the order of the B operand: column n (of
// four), lane t at 8 (4n + t), the word of the upper half of k and that of the lower; byte 2e + r
// of a word is the slot 16s + 8r + 2t + e. Behind all units, what the digits of chunks are worth:
// 16 bytes a unit, those of a chunk's first one.
inline constexpr int kColumnBytes = 32;

struct LimbScale {
  float k_step[2];  // of a number of the slots s, times their code's 16
  float sum[2];     // Σx of the chunk; zero for s = 1
  static constexpr int kBytes = kLimbScaleBytes;
  // A lane's: {unit[t], sum[t]}. `worth`: of the chunk's first unit.
  __device__ __forceinline__ static float2 of_lane(const std::byte* limb_scale, int lane) {
    return reinterpret_cast<const float2*>(limb_scale)[lane % 2];
  }
  __device__ __forceinline__ void store(std::byte* limb_scale) const {
    *reinterpret_cast<float4*>(limb_scale) = make_float4(k_step[0], sum[0], k_step[1], sum[1]);
  }
};

// Sums of one chunk: element 2h + d of a strip is column 8h + g, digit d (0: high). Of two bits,
// and of what widths of five and six have above four, column 8 + g comes with a quarter of column g
// added to it, and that 4 times too large; of three bits it is twice too large.
template <int NTiles>
struct LimbSums {
  int at[NTiles][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < NTiles; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) at[i][c] = 0;
  }
  __device__ __forceinline__ void times16() {
#pragma unroll
    for (int i = 0; i < NTiles; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) at[i][c] <<= 4;
  }
  // Those of two bits: column 8 + g alone, 4 times too large still.
  __device__ __forceinline__ void part_columns() {
#pragma unroll
    for (int i = 0; i < NTiles; ++i)
#pragma unroll
      for (int d = 0; d < 2; ++d) at[i][2 + d] -= at[i][d];
  }
  // Column 8 + g is 2^kBits times too large. Exact.
  template <int kBits>
  __device__ __forceinline__ void shrink_upper() {
#pragma unroll
    for (int i = 0; i < NTiles; ++i)
#pragma unroll
      for (int d = 0; d < 2; ++d) at[i][2 + d] >>= kBits;
  }
};

// The codes of one lane and unit as bytes; how they lie is told by code_matrix.h. operands():
// registers 2k + h, of the lower (k = 0) and the upper half of k. lane_at(): bytes to a lane's
// first ones.
template <int Bits>
struct CodeBytes;

template <>
struct CodeBytes<4> {
  uint2 w;
  __device__ __forceinline__ static int lane_at(int lane) { return lane * 8; }
  // `from`: the unit's, lane_at() further on.
  __device__ __forceinline__ void load(const std::byte* from, int) {
    w = *reinterpret_cast<const uint2*>(from);
  }
  __device__ __forceinline__ void operands(std::uint32_t (&a)[4]) const {
    a[0] = w.x & 0x0f0f0f0fu;
    a[1] = w.y & 0x0f0f0f0fu;
    a[2] = w.x;
    a[3] = w.y;
  }
};

// Both columns' in one operand; they are parted later.
template <>
struct CodeBytes<2> {
  std::uint32_t w;
  __device__ __forceinline__ static int lane_at(int lane) { return lane * 4; }
  __device__ __forceinline__ void load(const std::byte* from, int) {
    w = *reinterpret_cast<const std::uint32_t*>(from);
  }
  __device__ __forceinline__ void operands(std::uint32_t (&a)[4]) const {
    a[0] = w & 0x03030303u;
    a[1] = w & 0x0f0f0f0fu;
    a[2] = w & 0x33333333u;
    a[3] = w;
  }
};

// The highest bits of five: those of two bits without the upper one.
template <>
struct CodeBytes<1> {
  std::uint32_t w;  // others are anything
  __device__ __forceinline__ static int lane_at(int lane) { return lane / 2 * 4; }
  __device__ __forceinline__ void load(const std::byte* from, int lane) {
    w = *reinterpret_cast<const std::uint32_t*>(from) >> (lane % 2);
  }
  __device__ __forceinline__ void operands(std::uint32_t (&a)[4]) const {
    a[0] = w & 0x01010101u;
    a[1] = w & 0x05050505u;
    a[2] = w & 0x11111111u;
    a[3] = w & 0x55555555u;
  }
};

// Of h = 1 twice the code, so that its highest bit need not move.
template <>
struct CodeBytes<3> {
  std::uint32_t w;
  std::uint32_t lower_bits;  // its lower bits, at bit 1 of nibbles; others are anything
  __device__ __forceinline__ static int lane_at(int lane) { return lane * 4; }
  __device__ __forceinline__ void load(const std::byte* from, int lane) {
    w = *reinterpret_cast<const std::uint32_t*>(from);
    const std::uint32_t shared = *reinterpret_cast<const std::uint32_t*>(
        from + low_words(3) * 4 + lane / 2 * 4 - lane_at(lane));
    lower_bits = __funnelshift_l(shared, shared, lane % 2 == 0 ? 1 : 31);
  }
  __device__ __forceinline__ void operands(std::uint32_t (&a)[4]) const {
    a[0] = w & 0x07070707u;
    a[2] = w & 0x77777777u;
    a[3] = (lower_bits & 0x66666666u) | (w & 0x88888888u);
    a[1] = a[3] & 0x0f0f0f0fu;
  }
};

// The upper half of k comes first: its registers are what was loaded, in the order it was loaded.
// kFirst: nothing is in `sums` yet; so nobody has to clear them.
template <bool kFirst>
__device__ __forceinline__ void multiply_halves(int (&sums)[4], const std::uint32_t (&a)[4],
                                                std::uint32_t b0, std::uint32_t b1) {
  const std::uint32_t swapped[4] = {a[2], a[3], a[0], a[1]};
  if constexpr (kFirst) {
    mma_16x8x32_first(sums, swapped, b1, b0);
  } else {
    mma_16x8x32(sums, swapped, b1, b0);
  }
}

// A lane's digits of a chunk.
class LimbReader {
 public:
  // `first_k_step`: of the chunk.
  __device__ __forceinline__ LimbReader(const std::byte* first_k_step, int lane)
      : from_(first_k_step + lane % 16 * 8) {}
  __device__ __forceinline__ void operands(int k_step, std::uint32_t& b0, std::uint32_t& b1) const {
    const uint2 both = *reinterpret_cast<const uint2*>(from_ + k_step * kInputKStepBytes);
    b0 = both.y;
    b1 = both.x;
  }
  __device__ __forceinline__ void advance(int k_steps) { from_ += k_steps * kInputKStepBytes; }

 private:
  const std::byte* from_;
};

// The codes of a chunk, plane by plane.
struct KBlockPlanes {
  const std::byte* first = nullptr;  // of the first strip
  int stride = 0;                    // to the next strip's, bytes
  int n_tiles = 0;                   // that are there, at least one
  int k_steps = 0;
  // A single strip goes by the code for two: a second one is multiplied like it, and the results
  // are not used.
  template <int NTiles>
  __device__ __forceinline__ const std::byte* n_tile(int i) const {
    if (i == 0) return first;
    return first + (NTiles > 2 ? i * stride : min(i, n_tiles - 1) * stride);
  }
};

// How the sums of a chunk begin. Where their first product writes them nobody has to clear them,
// but the code of a step is there twice. Which is the fastest is a matter of how much code there is
// beside it, and was measured (bench/ladder/exl2_gemv).
enum class Begin {
  kCleared,  // they hold something already
  kJoined,   // the first step writes them; of two planes, pointers go on behind every step
  kApart,    // the same, but they go on in front of a step, so that short groups advance nothing
  kWhole,    // and a chunk of full length has no loop: where there is no other code
};
// In kernels of these widths. Mixes from four bits on have the most code.
template <int kBits, WidthSet kWidths>
inline constexpr Begin kBeginOf = kWidths == width_set({4}) ? Begin::kWhole
                                  : has_width(kWidths, 4) && has_width(kWidths, 5)
                                      ? (kBits == 4 ? Begin::kCleared : Begin::kJoined)
                                  : kBits == 4 ? Begin::kCleared
                                               : Begin::kApart;

// sums = codes of one plane · digits, or += where they are cleared; a strip's units are
// `k_step_stride` bytes apart. Strips: at most one more than there are.
template <int Bits, Begin kBegin, int NTiles, class Stride, class Reader>
__device__ __forceinline__ void add_plane(const KBlockPlanes& codes, int offset,
                                          Stride k_step_stride, Reader limbs,
                                          LimbSums<NTiles>& sums) {
  const int lane = lane_index();
  const std::byte* from[NTiles];
#pragma unroll
  for (int i = 0; i < NTiles; ++i) {
    from[i] = codes.template n_tile<NTiles>(i) + offset + CodeBytes<Bits>::lane_at(lane);
  }
  const auto add = [&]<bool kFirst = false>(int u, std::bool_constant<kFirst> = {}) {
    std::uint32_t b0;
    std::uint32_t b1;
    limbs.operands(u, b0, b1);
#pragma unroll
    for (int i = 0; i < NTiles; ++i) {
      CodeBytes<Bits> bytes;
      bytes.load(from[i] + u * k_step_stride, lane);
      std::uint32_t a[4];
      bytes.operands(a);
      multiply_halves<kFirst>(sums.at[i], a, b0, b1);
    }
  };
  const auto advance = [&](int k_steps) {
    limbs.advance(k_steps);
#pragma unroll
    for (int i = 0; i < NTiles; ++i) from[i] += k_steps * k_step_stride;
  };
  int left = codes.k_steps;
  if constexpr (kBegin == Begin::kWhole) {
    static_assert(std::is_same_v<Reader, LimbReader>);
    if (left == kMaxKBlockSteps) {
      add(0, std::true_type{});
#pragma unroll
      for (int u = 1; u < kMaxKBlockSteps; ++u) add(u);
      return;
    }
  }
  // Two units at a time; small groups, or the rest of one, end within a pair. Code that is there
  // once or twice: loops of their own for pairs and for single units cost more than they save.
  if constexpr (kBegin == Begin::kCleared) {
#pragma unroll 1
    while (true) {
      add(0);
      if (left == 1) return;
      add(1);
      left -= 2;
      if (left == 0) return;
      advance(2);
    }
  } else {
    add(0, std::true_type{});
#pragma unroll 1
    while (left > 1) {
      add(1);
      left -= 2;
      if (left == 0) return;
      advance(2);
      add(0);
    }
  }
}

// sums = codes of four bits and, above them, of `Bits` in a second plane, at once: digits are read
// once, and a chunk of one unit, of which mixes have many, goes through one loop.
template <int Bits, Begin kBegin, int NTiles, class Reader>
__device__ __forceinline__ void multiply_two_planes(const KBlockPlanes& codes, int k_step_stride,
                                                    Reader limbs, LimbSums<NTiles>& sums) {
  static_assert(kBegin != Begin::kCleared);
  constexpr bool kApart = kBegin == Begin::kApart;
  const int lane = lane_index();
  const std::byte* low_from[NTiles];
#pragma unroll
  for (int i = 0; i < NTiles; ++i) {
    low_from[i] = codes.template n_tile<NTiles>(i) + CodeBytes<4>::lane_at(lane);
  }
  const int top_at = k_step_bytes(4) + CodeBytes<Bits>::lane_at(lane) - CodeBytes<4>::lane_at(lane);
  LimbSums<NTiles> tops;
  const auto add = [&]<bool kFirst = false>(std::bool_constant<kFirst> = {}) {
    std::uint32_t b0;
    std::uint32_t b1;
    limbs.operands(0, b0, b1);
    if constexpr (!kApart) limbs.advance(1);
#pragma unroll
    for (int i = 0; i < NTiles; ++i) {
      CodeBytes<4> low;
      CodeBytes<Bits> top;
      low.load(low_from[i], lane);
      top.load(low_from[i] + top_at, lane);
      if constexpr (!kApart) low_from[i] += k_step_stride;
      std::uint32_t a[4];
      low.operands(a);
      multiply_halves<kFirst>(sums.at[i], a, b0, b1);
      top.operands(a);
      multiply_halves<kFirst>(tops.at[i], a, b0, b1);
    }
  };
  int left = codes.k_steps;
  add(std::true_type{});
  --left;
#pragma unroll 1
  for (; left > 0; --left) {
    if constexpr (kApart) {
      limbs.advance(1);
#pragma unroll
      for (int i = 0; i < NTiles; ++i) low_from[i] += k_step_stride;
    }
    add();
  }
#pragma unroll
  for (int i = 0; i < NTiles; ++i)
#pragma unroll
    for (int d = 0; d < 2; ++d) {
      // Parted, a quarter of that, times 16.
      sums.at[i][2 + d] += (tops.at[i][2 + d] - tops.at[i][d]) * 4;
      sums.at[i][d] += tops.at[i][d] * 16;
    }
}

// sums = codes · digits over one chunk. Every width has code of its own, but 8 bits, which are two
// planes of 4, the high nibbles first. kWidths: those that there may be; code for others would only
// stand in the way of what runs (bench/ladder/exl2_gemv).
template <WidthSet kWidths, int NTiles, class Reader>
__device__ __forceinline__ void multiply_limbs(int bits, const KBlockPlanes& codes,
                                               const Reader& limbs, LimbSums<NTiles>& sums) {
  const int stride = k_step_bytes(bits);
  if (is_width<4, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 4)) {
      constexpr Begin kBegin = kBeginOf<4, kWidths>;
      if constexpr (kBegin == Begin::kCleared) sums.clear();
      add_plane<4, kBegin>(codes, 0, std::integral_constant<int, k_step_bytes(4)>{}, limbs, sums);
    }
  } else if (is_width<5, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 5))
      multiply_two_planes<1, kBeginOf<5, kWidths>>(codes, stride, limbs, sums);
  } else if (is_width<6, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 6))
      multiply_two_planes<2, kBeginOf<6, kWidths>>(codes, stride, limbs, sums);
  } else if (is_width<3, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 3)) {
      add_plane<3, kBeginOf<3, kWidths>>(codes, 0, stride, limbs, sums);
      sums.template shrink_upper<1>();
    }
  } else if (is_width<2, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 2)) {
      add_plane<2, kBeginOf<2, kWidths>>(codes, 0, stride, limbs, sums);
      sums.part_columns();
      sums.template shrink_upper<2>();
    }
  } else if constexpr (has_width(kWidths, 8)) {
    sums.clear();
#pragma unroll 1
    for (int offset = 0; offset <= k_step_bytes(4); offset += k_step_bytes(4)) {
      sums.times16();
      add_plane<4, Begin::kCleared>(codes, offset, stride, limbs, sums);
    }
  }
}

// The number of two digits' sums, rounded once either way: of codes of up to five bits it fits into
// 32 bits.
template <WidthSet kWidths>
__device__ __forceinline__ float combine_limbs(int high, int low) {
  constexpr bool kFits = !has_width(kWidths, 6) && !has_width(kWidths, 8);
  if constexpr (kFits) return static_cast<float>(high * 256 + low);
  return fmaf(static_cast<float>(high), 256.0f, static_cast<float>(low));
}

// totals[h] += scale · (what the sums are worth − zero · Σx) of one strip of a chunk.
template <WidthSet kWidths>
__device__ __forceinline__ void add_scaled(const LaneScales& scales, const float2& limb_scale,
                                           const int (&sums)[4], float (&totals)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float number = combine_limbs<kWidths>(sums[2 * h], sums[2 * h + 1]);
    totals[h] += scales.scale[h] * (number * limb_scale.x - scales.zero[h] * limb_scale.y);
  }
}

// The lanes t = 2, 3 of a group have the same sums as t = 0, 1. So of two strips each lane takes
// one: lanes t < 2 the first.
__device__ __forceinline__ bool takes_second_n_tile() { return (lane_index() & 2) != 0; }
__device__ __forceinline__ void take_n_tile(const int (&first)[4], const int (&second)[4],
                                            int (&own)[4]) {
#pragma unroll
  for (int c = 0; c < 4; ++c) own[c] = takes_second_n_tile() ? second[c] : first[c];
}

}  // namespace bl::cuda
