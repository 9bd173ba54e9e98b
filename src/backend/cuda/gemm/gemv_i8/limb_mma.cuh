#pragma once
// What one warp multiplies in gemv_i8: codes · activations as integers on int8 tensor cores.
//
// The activations of a k_block are 15-bit integers times one power of two (the limb scale); an
// integer is two limbs, 256 · high + low, each a signed byte. Codes become the bytes of operand A
// of mma.m16n8k32: in its lower half of k the codes of s = 0 (code_matrix.h) by one mask a
// register, in its upper half the bytes as they are, that is 16 times the codes of s = 1 plus the
// codes of s = 0. With one token the columns of B use what it leaves free. Columns 0 and 1: the
// high and low limbs of s = 0 in the lower half and zeros in the upper. Columns 2 and 3: the limbs
// of s = 1, as −x in the lower half and x in the upper, so that the codes of s = 0 cancel. Columns
// 4 to 7: copies. Lane 4g + t ends with the sums of the k with s = t % 2. With two to four tokens
// the codes of s = 1 are shifted down (separate_halves), and columns 2n and 2n + 1 are the high and
// low limbs of token n: lane 4g + t ends with the sums of token t. The sums are exact: 32 bits
// cannot overflow within a k_block.

#include <type_traits>

#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/gemm/skinny/k_block_mma.cuh"

namespace bl::cuda {

// The integers of a k_block are below 2^kLimbBits in magnitude.
inline constexpr int kLimbBits = 14;

// The power of two by which the activations of a k_block become integers.
struct LimbFactor {
  float factor;  // activation → integer
  float scale;   // integer → activation; NaN if an activation is infinite or NaN
  // `most`: the bits of the largest magnitude, compared as bits, where NaN is larger than all.
  __device__ __forceinline__ explicit LimbFactor(std::uint32_t most) {
    const std::uint32_t exponent = max(most, 20u << 23) & 0x7f800000u;  // keeps `factor` finite
    factor = __uint_as_float(((253u + kLimbBits) << 23) - exponent);
    scale = __uint_as_float(exponent - ((kLimbBits - 1u) << 23));
    if (most >= 0x7f800000u) scale = __uint_as_float(0x7fffffffu);
  }
};

// 1.5 · 2^23: a float of this size has no bits behind the point.
inline constexpr float kWholeNumbers = 12582912.0f;

// Rounds x · factor + more to the nearest integer, in the lower bits of that float.
__device__ __forceinline__ std::uint32_t limb_number(float x, float factor, float more) {
  return __float_as_uint(fmaf(x, factor, kWholeNumbers + more));
}

// A token's input: 128 bytes a k_step. First its elements as floats in the order of
// fragment_offset; then, in the same place, their limbs in the order of operand B: for column n (of
// four) and lane t, at 8 (4n + t), the word of the upper half of k and that of the lower; byte 2e +
// r of a word is k = 16s + 8r + 2t + e. With several tokens a token has two columns, 64 bytes a
// k_step. Behind all k_steps lie the limb scales: 16 bytes a k_step, used in the first k_step of
// each k_block.
inline constexpr int kColumnBytes = 32;

struct LimbScale {
  float scale[2];  // of an integer of k with s, including its code's factor 16
  float sum[2];    // Σx of the k_block; zero for s = 1
  static constexpr int kBytes = kLimbScaleBytes;
  // Returns a lane's {scale[t], sum[t]}. `limb_scale`: of the k_block's first k_step.
  __device__ __forceinline__ static float2 of_lane(const std::byte* limb_scale, int lane) {
    return reinterpret_cast<const float2*>(limb_scale)[lane % 2];
  }
  __device__ __forceinline__ void store(std::byte* limb_scale) const {
    *reinterpret_cast<float4*>(limb_scale) = make_float4(scale[0], sum[0], scale[1], sum[1]);
  }
};

// Integer sums of one k_block: element 2h + d of an n_tile is column 8h + g, limb d (0: high). With
// two bits, and in the upper plane of five and six bits, column 8 + g is 4 times too large and has
// column g added; with three bits it is twice too large.
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
  // Two bits: removes column g from column 8 + g, which stays 4 times too large.
  __device__ __forceinline__ void separate_columns() {
#pragma unroll
    for (int i = 0; i < NTiles; ++i)
#pragma unroll
      for (int d = 0; d < 2; ++d) at[i][2 + d] -= at[i][d];
  }
  // Column 8 + g is 2^kBits times too large; the division is exact.
  template <int kBits>
  __device__ __forceinline__ void shrink_upper() {
#pragma unroll
    for (int i = 0; i < NTiles; ++i)
#pragma unroll
      for (int d = 0; d < 2; ++d) at[i][2 + d] >>= kBits;
  }
};

// The codes of one lane and k_step as bytes; code_matrix.h says how they lie. operands(): registers
// 2k + h, for the lower (k = 0) and the upper half of k. lane_at(): bytes to the lane's first word.
template <int Bits>
struct CodeBytes;

template <>
struct CodeBytes<4> {
  uint2 w;
  __device__ __forceinline__ static int lane_at(int lane) { return lane * 8; }
  // `from`: the k_step, plus lane_at().
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

// One operand holds both columns; separate_columns() separates them later.
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

// The highest bits of five: like two bits without the upper one.
template <>
struct CodeBytes<1> {
  std::uint32_t w;  // unmasked
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

// h = 1 holds twice the code, so that its highest bit need not be shifted.
template <>
struct CodeBytes<3> {
  std::uint32_t w;
  // The code's lower bits, at bit 1 of each nibble; the other bits are unmasked.
  std::uint32_t lower_bits;
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

// Makes the upper half of k the codes of s = 1 alone, from bytes that also hold those of s = 0.
__device__ __forceinline__ void separate_halves(std::uint32_t (&a)[4]) {
  a[2] = a[2] >> 4 & 0x0f0f0f0fu;
  a[3] = a[3] >> 4 & 0x0f0f0f0fu;
}

// What a lane reads of a k_step's limbs for one column of operand B: the words of the upper half of
// k and of the lower.
struct LimbWords {
  std::uint32_t upper;
  std::uint32_t lower;
};

// The upper half of k comes first: its registers are the words as they were loaded. kFirst: writes
// `sums`, so that nobody has to clear them.
template <bool kFirst>
__device__ __forceinline__ void multiply_halves(int (&sums)[4], const std::uint32_t (&a)[4],
                                                const LimbWords& b) {
  const std::uint32_t swapped[4] = {a[2], a[3], a[0], a[1]};
  if constexpr (kFirst) {
    mma_16x8x32_first(sums, swapped, b.upper, b.lower);
  } else {
    mma_16x8x32(sums, swapped, b.upper, b.lower);
  }
}

// Reads a lane's limbs of a k_block. A reader of several token tiles has as many operands B, and
// sums of n_tile i and token tile n are in LimbSums::at[i · kTiles + n].
class LimbReader {
 public:
  static constexpr int kTiles = 1;
  static constexpr bool kSeparate = false;  // see separate_halves()
  // Whether n_tiles beyond the last valid one repeat it even where there are more than two; and
  // whether codes of two planes are multiplied plane by plane, which needs fewer registers.
  static constexpr bool kClampsNTiles = false;
  static constexpr bool kPlaneByPlane = false;
  static constexpr bool kWhole = false;  // codes of 4 bits: as Begin::kWhole whatever the widths
  // `first_k_step`: the k_block's.
  __device__ __forceinline__ LimbReader(const std::byte* first_k_step, int lane)
      : from_(first_k_step + lane % 16 * 8) {}
  __device__ __forceinline__ void operands(int k_step, LimbWords (&b)[kTiles]) const {
    const uint2 both = *reinterpret_cast<const uint2*>(from_ + k_step * kInputKStepBytes);
    b[0] = {both.x, both.y};
  }
  __device__ __forceinline__ void advance(int k_steps) { from_ += k_steps * kInputKStepBytes; }

 private:
  const std::byte* from_;
};

// LimbReader for two to four tokens: a lane reads column lane / 4, which is a limb of token lane
// / 8.
class TokensReader : public LimbReader {
 public:
  static constexpr bool kSeparate = true;
  // `token`: bytes to the limbs of the lane's token.
  __device__ __forceinline__ TokensReader(const std::byte* first_k_step, int token, int lane)
      : LimbReader(first_k_step + token, lane % 8) {}
};

// The codes of a k_block, plane by plane.
struct KBlockPlanes {
  const std::byte* first = nullptr;  // of the first n_tile
  int stride = 0;                    // bytes to the next n_tile
  int n_tiles = 0;                   // valid ones, at least one
  int k_steps = 0;
  // A single n_tile uses the code for two: the first one is multiplied twice, and the second result
  // is not used. kClamps: any number of n_tiles may be missing.
  template <int NTiles, bool kClamps>
  __device__ __forceinline__ const std::byte* n_tile(int i) const {
    if (i == 0) return first;
    return first + (NTiles > 2 && !kClamps ? i * stride : min(i, n_tiles - 1) * stride);
  }
};

// How the sums of a k_block begin. If the first mma writes them, nobody has to clear them, but the
// code of a k_step exists twice. Which is faster depends on how much other code the kernel has, and
// was measured (bench/ladder/gemv_i8.md).
enum class Begin {
  kCleared,  // they are cleared before the first k_step
  kJoined,   // the first k_step writes them; two planes: pointers advance behind every k_step
  kApart,    // as kJoined, but pointers advance in front of a k_step: never in short groups
  kWhole,    // as kJoined, and a k_block of full length has no loop: for kernels without other code
};
// The choice for kernels of these widths. Mixes that include 4 and 5 bits have the most code.
template <int kBits, WidthSet kWidths>
inline constexpr Begin kBeginOf = kWidths == width_set({4}) ? Begin::kWhole
                                  : has_width(kWidths, 4) && has_width(kWidths, 5)
                                      ? (kBits == 4 ? Begin::kCleared : Begin::kJoined)
                                  : kBits == 4 ? Begin::kCleared
                                               : Begin::kApart;

// sums = codes of one plane · limbs, or += if they were cleared. An n_tile's k_steps are
// `k_step_stride` bytes apart. NTiles exceeds the number of valid n_tiles by at most one.
template <int Bits, Begin kBegin, int kSums, class Stride, class Reader>
__device__ __forceinline__ void add_plane(const KBlockPlanes& codes, int offset,
                                          Stride k_step_stride, Reader limbs,
                                          LimbSums<kSums>& sums) {
  constexpr int NTiles = kSums / Reader::kTiles;
  const int lane = lane_index();
  const std::byte* from[NTiles];
#pragma unroll
  for (int i = 0; i < NTiles; ++i) {
    from[i] = codes.template n_tile<NTiles, Reader::kClampsNTiles>(i) + offset +
              CodeBytes<Bits>::lane_at(lane);
  }
  const auto add = [&]<bool kFirst = false>(int u, std::bool_constant<kFirst> = {}) {
    LimbWords b[Reader::kTiles];
    limbs.operands(u, b);
#pragma unroll
    for (int i = 0; i < NTiles; ++i) {
      CodeBytes<Bits> bytes;
      bytes.load(from[i] + u * k_step_stride, lane);
      std::uint32_t a[4];
      bytes.operands(a);
      if constexpr (Reader::kSeparate) separate_halves(a);
#pragma unroll
      for (int n = 0; n < Reader::kTiles; ++n) {
        multiply_halves<kFirst>(sums.at[i * Reader::kTiles + n], a, b[n]);
      }
    }
  };
  const auto advance = [&](int k_steps) {
    limbs.advance(k_steps);
#pragma unroll
    for (int i = 0; i < NTiles; ++i) from[i] += k_steps * k_step_stride;
  };
  int left = codes.k_steps;
  if constexpr (kBegin == Begin::kWhole) {
    if (left == kMaxKBlockSteps) {
      add(0, std::true_type{});
#pragma unroll
      for (int u = 1; u < kMaxKBlockSteps; ++u) add(u);
      return;
    }
  }
  // Two k_steps at a time; a short or last k_block ends within such a pair. Separate loops for
  // pairs and single k_steps cost more than they save, because the code runs only once or twice.
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

// sums = codes of four bits and, in a second plane, `Bits` bits above them, in one pass: limbs are
// read once, and k_blocks of one k_step, of which mixes have many, take one loop.
template <int Bits, Begin kBegin, int NTiles, class Reader>
__device__ __forceinline__ void multiply_two_planes(const KBlockPlanes& codes, int k_step_stride,
                                                    Reader limbs, LimbSums<NTiles>& sums) {
  static_assert(kBegin != Begin::kCleared && Reader::kTiles == 1);
  constexpr bool kApart = kBegin == Begin::kApart;
  const int lane = lane_index();
  const std::byte* low_from[NTiles];
#pragma unroll
  for (int i = 0; i < NTiles; ++i) {
    low_from[i] =
        codes.template n_tile<NTiles, Reader::kClampsNTiles>(i) + CodeBytes<4>::lane_at(lane);
  }
  const int top_at = k_step_bytes(4) + CodeBytes<Bits>::lane_at(lane) - CodeBytes<4>::lane_at(lane);
  LimbSums<NTiles> tops;
  const auto add = [&]<bool kFirst = false>(std::bool_constant<kFirst> = {}) {
    LimbWords b[1];
    limbs.operands(0, b);
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
      if constexpr (Reader::kSeparate) separate_halves(a);
      multiply_halves<kFirst>(sums.at[i], a, b[0]);
      top.operands(a);
      if constexpr (Reader::kSeparate) separate_halves(a);
      multiply_halves<kFirst>(tops.at[i], a, b[0]);
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
      // Separates the columns, divides by 4, multiplies by 16.
      sums.at[i][2 + d] += (tops.at[i][2 + d] - tops.at[i][d]) * 4;
      sums.at[i][d] += tops.at[i][d] * 16;
    }
}

// As multiply_two_planes(), one plane after the other: limbs are read twice, but the sums of only
// one plane take registers.
template <int Bits, int kSums, class Reader>
__device__ __forceinline__ void multiply_plane_by_plane(const KBlockPlanes& codes,
                                                        int k_step_stride, const Reader& limbs,
                                                        LimbSums<kSums>& sums) {
  sums.clear();
  add_plane<Bits, Begin::kCleared>(codes, k_step_bytes(4), k_step_stride, limbs, sums);
#pragma unroll
  for (int i = 0; i < kSums; ++i)
#pragma unroll
    for (int d = 0; d < 2; ++d) {
      // Separates the columns, divides by 4, multiplies by 16.
      sums.at[i][2 + d] = (sums.at[i][2 + d] - sums.at[i][d]) * 4;
      sums.at[i][d] *= 16;
    }
  add_plane<4, Begin::kCleared>(codes, 0, k_step_stride, limbs, sums);
}

// sums = codes · limbs over one k_block. Every width has its own code, except 8 bits: two planes of
// 4, the high nibbles first. kWidths: the widths that occur; code for others would slow the kernel
// down although it never runs (bench/ladder/gemv_i8.md).
template <WidthSet kWidths, int NTiles, class Reader>
__device__ __forceinline__ void multiply_limbs(int bits, const KBlockPlanes& codes,
                                               const Reader& limbs, LimbSums<NTiles>& sums) {
  const int stride = k_step_bytes(bits);
  if (is_width<4, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 4)) {
      constexpr Begin kBegin = Reader::kWhole ? Begin::kWhole : kBeginOf<4, kWidths>;
      if constexpr (kBegin == Begin::kCleared) sums.clear();
      add_plane<4, kBegin>(codes, 0, std::integral_constant<int, k_step_bytes(4)>{}, limbs, sums);
    }
  } else if (is_width<5, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 5) && Reader::kPlaneByPlane) {
      multiply_plane_by_plane<1>(codes, stride, limbs, sums);
    } else if constexpr (has_width(kWidths, 5)) {
      multiply_two_planes<1, kBeginOf<5, kWidths>>(codes, stride, limbs, sums);
    }
  } else if (is_width<6, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 6) && Reader::kPlaneByPlane) {
      multiply_plane_by_plane<2>(codes, stride, limbs, sums);
    } else if constexpr (has_width(kWidths, 6)) {
      multiply_two_planes<2, kBeginOf<6, kWidths>>(codes, stride, limbs, sums);
    }
  } else if (is_width<3, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 3)) {
      add_plane<3, kBeginOf<3, kWidths>>(codes, 0, stride, limbs, sums);
      sums.template shrink_upper<1>();
    }
  } else if (is_width<2, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 2)) {
      add_plane<2, kBeginOf<2, kWidths>>(codes, 0, stride, limbs, sums);
      sums.separate_columns();
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

// Combines the sums of two limbs, rounded once in either form: with codes of up to five bits the
// integer fits into 32 bits, and with any codes where halves were separated.
template <WidthSet kWidths>
__device__ __forceinline__ float combine_limbs(int high, int low) {
  constexpr bool kFits = !has_width(kWidths, 6) && !has_width(kWidths, 8);
  if constexpr (kFits) return static_cast<float>(high * 256 + low);
  return fmaf(static_cast<float>(high), 256.0f, static_cast<float>(low));
}

// totals[h] += scale · (number · limb scale − zero · Σx) for one n_tile of a k_block.
template <WidthSet kWidths>
__device__ __forceinline__ void add_scaled(const LaneScales& scales, const float2& limb_scale,
                                           const int (&sums)[4], float (&totals)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float number = combine_limbs<kWidths>(sums[2 * h], sums[2 * h + 1]);
    totals[h] += scales.scale[h] * (number * limb_scale.x - scales.zero[h] * limb_scale.y);
  }
}

// With one token, lanes t = 2, 3 have the same sums as t = 0, 1; so of two n_tiles lanes t < 2 keep
// the first and lanes t ≥ 2 the second.
__device__ __forceinline__ bool owns_second_n_tile() { return (lane_index() & 2) != 0; }
__device__ __forceinline__ void pick_n_tile(const int (&first)[4], const int (&second)[4],
                                            int (&own)[4]) {
#pragma unroll
  for (int c = 0; c < 4; ++c) own[c] = owns_second_n_tile() ? second[c] : first[c];
}

}  // namespace bl::cuda
