#pragma once
// K_blocks of short groups, for one token, in pairs (KBlockPair). A k_block of one or two k_steps
// costs a warp nearly as much to find, multiply and scale as one of four, and with one token
// columns 4 to 7 of B (limb_mma.cuh) are free. So k_steps of the first k_block have zeros in
// columns 4 to 7, and those of the second in columns 0 to 3: lane 4g + t ends with the sums of
// k_block t / 2, and the pair counts as one k_block everywhere else.

#include <cuda_fp16.h>

#include "backend/cuda/device/shared_address.cuh"
#include "backend/cuda/gemm/gemv_i8/limb_mma.cuh"
#include "backend/cuda/gemm/skinny/copy_block_mma.cuh"

namespace bl::cuda {

// N_tiles whose sums one lane owns: all of a group, for one k_block of each pair.
using PairTotals = float[kGemvNTiles][2];

// Reads a lane's limbs of a pair of k_blocks, k_step by k_step, like LimbReader for one k_block.
class PairReader {
 public:
  static constexpr int kTiles = 1;
  static constexpr bool kSeparate = false;
  static constexpr bool kClampsNTiles = false;
  static constexpr bool kPlaneByPlane = false;
  static constexpr bool kWhole = false;
  // `at`: addresses of k_steps 0, 1 and 2, see KBlockPair.
  __device__ __forceinline__ PairReader(const std::byte* const (&at)[3])
      : even_(at[0]), odd_(at[1]), later_(at[2]) {}
  // `k_step`: 0 or 1, counted from the last advance().
  __device__ __forceinline__ void operands(int k_step, LimbWords (&b)[kTiles]) const {
    const uint2 both = *reinterpret_cast<const uint2*>(k_step == 0 ? even_ : odd_);
    b[0] = {both.x, both.y};
  }
  // Advances by one k_step, or, once, by two.
  __device__ __forceinline__ void advance(int k_steps) {
    even_ = k_steps == 1 ? odd_ : later_;
    odd_ = k_steps == 1 ? later_ : later_ + kInputKStepBytes;
    later_ += kInputKStepBytes;
  }

 private:
  const std::byte* even_;
  const std::byte* odd_;
  const std::byte* later_;
};

// sums = codes of one plane · limbs of a pair.
template <int Bits, int NTiles>
__device__ __forceinline__ void multiply_pair_plane(const KBlockPlanes& codes,
                                                    const std::byte* const (&limbs)[3],
                                                    LimbSums<NTiles>& sums) {
  const int lane = lane_index();
  const std::byte* from[NTiles];
#pragma unroll
  for (int i = 0; i < NTiles; ++i) {
    from[i] =
        opaque_smem_ptr(codes.template n_tile<NTiles, false>(i) + CodeBytes<Bits>::lane_at(lane));
  }
  const auto add = [&]<int kKStep>(std::integral_constant<int, kKStep>) {
    const std::byte* at = kKStep == 3 ? limbs[2] + kInputKStepBytes : limbs[kKStep];
    const uint2 both = *reinterpret_cast<const uint2*>(at);
#pragma unroll
    for (int i = 0; i < NTiles; ++i) {
      CodeBytes<Bits> bytes;
      bytes.load(from[i] + kKStep * k_step_bytes(Bits), lane);
      std::uint32_t a[4];
      bytes.operands(a);
      multiply_halves<kKStep == 0>(sums.at[i], a, {both.x, both.y});
    }
  };
  const auto first = [&] { add(std::integral_constant<int, 0>{}); };
  const auto second = [&] { add(std::integral_constant<int, 1>{}); };
  const auto third = [&] { add(std::integral_constant<int, 2>{}); };
  first();
  if (codes.k_steps == 1) return;
  second();
  if (codes.k_steps == 2) return;
  third();
  if (codes.k_steps == 3) return;
  add(std::integral_constant<int, 3>{});
}

// sums = codes of any width · limbs of a pair, see multiply_limbs. Returns the factor that columns
// 8 + g of the sums still need.
template <WidthSet kWidths, int NTiles>
__device__ __forceinline__ float multiply_pair(int bits, const KBlockPlanes& codes,
                                               const std::byte* const (&limbs)[3],
                                               LimbSums<NTiles>& sums) {
  if (is_width<2, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 2)) {
      multiply_pair_plane<2>(codes, limbs, sums);
      sums.separate_columns();
    }
    return 0.25f;
  }
  if (is_width<3, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 3)) multiply_pair_plane<3>(codes, limbs, sums);
    return 0.5f;
  }
  if (is_width<4, kWidths>(bits)) {
    if constexpr (has_width(kWidths, 4)) multiply_pair_plane<4>(codes, limbs, sums);
  } else {
    constexpr WidthSet kWide = kWidths & width_set({5, 6, 8});
    if constexpr (kWide != 0) multiply_limbs<kWide>(bits, codes, PairReader(limbs), sums);
  }
  return 1.0f;
}

// Values that do not change between stages. Computed while the row is being read, when there is
// nothing else to do, and kept in registers: after the row, every instruction delays the result.
struct PairLane {
  float square;  // scale code i means (i + 1)² · group scale; i = lane % 16
  int limbs;     // bytes from a k_step's limbs to the lane's
  int scale;     // bytes from a group's scales to the lane's column
  int first;     // the lane that has scale code 0 of this lane's k_block
  int columns;   // bytes in a KBlockPair to the entry of the lane's column of B
  int sums;      // bytes in a KBlockPair to the entry of the lane's sums

  __device__ __forceinline__ static PairLane find() {
    const int lane = lane_index();
    PairLane of{.square = static_cast<float>((lane % 16 + 1) * (lane % 16 + 1)),
                .limbs = lane % 16 * 8,
                .scale = lane / 4,
                .first = lane % 4 / 2 * 16,
                .columns = (1 + lane / 16) * 16,
                .sums = (3 + lane % 4 / 2) * 16};
    // Without this the compiler computes them again at every use.
    asm volatile(""
                 : "+f"(of.square), "+r"(of.limbs), "+r"(of.scale), "+r"(of.first),
                   "+r"(of.columns), "+r"(of.sums));
    return of;
  }
};

// totals += this warp's share of the stage's pairs, see multiply_copy_block; a lane has the sums of
// one k_block of each pair.
template <WidthSet kWidths, int NTiles>
__device__ __forceinline__ void multiply_copy_block_pairs(const PairLane& of,
                                                          const StageView& copy_block,
                                                          int limb_scale_at, int& next,
                                                          PairTotals& totals) {
  const int lane = lane_index();
  int scales_at[NTiles];
#pragma unroll
  for (int i = 0; i < NTiles; ++i) {
    scales_at[i] = (NTiles > 2 ? i : min(i, copy_block.n_tiles - 1)) * copy_block.scale_stride;
  }
  const std::byte* input = copy_block.fragments + of.limbs;
  const std::byte* limb_scales = copy_block.fragments + limb_scale_at;
  const std::byte* scales = copy_block.scales + of.scale;
  for (; next < copy_block.k_blocks; next += kConsumerWarps) {
    const auto* words = reinterpret_cast<const std::byte*>(copy_block.k_block_words) +
                        next * static_cast<int>(sizeof(KBlockPair));
    const uint4 head = *reinterpret_cast<const uint4*>(words);
    const uint4 columns = *reinterpret_cast<const uint4*>(words + of.columns);
    const uint4 own = *reinterpret_cast<const uint4*>(words + of.sums);
    LimbSums<NTiles> sums;
    const float upper = multiply_pair<kWidths>(
        static_cast<int>(head.y),
        {copy_block.codes + head.x, copy_block.code_stride, copy_block.n_tiles,
         static_cast<int>(head.z)},
        {input + static_cast<int>(columns.x), input + static_cast<int>(columns.y),
         input + static_cast<int>(columns.z)},
        sums);
    const float of_code = __half2float(__float2half_rn(of.square * __uint_as_float(columns.w)));
    const float2 limb_scale = LimbScale::of_lane(limb_scales + own.x, lane);
    const float of_number[2] = {limb_scale.x, limb_scale.x * upper};
    const float less = __uint_as_float(own.z) * limb_scale.y;
#pragma unroll
    for (int i = 0; i < NTiles; ++i) {
      const int codes = static_cast<int>(scales[own.y + scales_at[i]]);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float scale =
            __shfl_sync(kAllLanes, of_code, of.first | (h == 0 ? codes & 15 : codes >> 4));
        const float number = combine_limbs<kWidths>(sums.at[i][2 * h], sums.at[i][2 * h + 1]);
        totals[i][h] += scale * (number * of_number[h] - less);
      }
    }
  }
}

// Stores a warp's sums as [n_tiles][16], adding both k_blocks and both halves of K; clears the
// totals.
__device__ __forceinline__ void store_pair_warp_sums(PairTotals& totals, float* warp_sums) {
  const int t = lane_index() % 4;
  const auto keep = [](bool upper, float first, float second, int distance) {
    const float other = __shfl_xor_sync(kAllLanes, upper ? first : second, distance);
    return (upper ? second : first) + other;
  };
#pragma unroll
  for (int p = 0; p < kGemvNTiles / 2; ++p) {
    float sums[2];  // of n_tile p or p + 2
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sums[h] = keep(t >= 2, totals[p][h], totals[p + 2][h], 2);
      totals[p][h] = totals[p + 2][h] = 0.0f;
    }
    warp_sums[(p + t / 2 * 2) * kNTileColumns + t % 2 * 8 + lane_index() / 4] =
        keep(t % 2 != 0, sums[0], sums[1], 1);
  }
}

}  // namespace bl::cuda
