#pragma once
// Activations of rows sorted by expert as int8 limbs (gemm/gemv_i8/limb_mma.cuh), in the form that
// travels with the weights through the pipeline of expert_stream.cu.
//
// A block of rows has a record a k_step. A record holds the limbs of all live rows, 64 bytes a row
// in the order of operand B: for column n (0: high limb, 1: low) and lane t, at 32n + 8t, the word
// of the upper half of k and that of the lower. Behind them lies an entry a row, {limb scale,
// Σx}, of the k_block that begins with this k_step.

#include "backend/cuda/gemm/gemv_i8/limb_mma.cuh"
#include "backend/cuda/moe/expert_limbs.h"

namespace bl::cuda {

// Adds up the bytes of four lanes, which differ in e and r of their k (code_matrix.h), to the word
// that holds them.
__device__ __forceinline__ std::uint32_t limb_word(std::uint32_t byte) {
  const int lane = lane_index();
  std::uint32_t word = byte << (8 * (2 * (lane % 2) + lane / 8 % 2));
  word |= __shfl_xor_sync(kAllLanes, word, 1);
  return word | __shfl_xor_sync(kAllLanes, word, 8);
}

// Where the limbs of one row of a block go.
struct LimbRow {
  std::byte* records = nullptr;  // of the block's k_step 0
  int record_bytes = 0;
  int row_at = 0;    // of the row in a record
  int entry_at = 0;  // likewise

  __device__ __forceinline__ LimbRow(std::byte* of_block, int live, int row)
      : records(of_block),
        record_bytes(limb_record_bytes(live)),
        row_at(row * kLimbRowBytes),
        entry_at(live * kLimbRowBytes + row * kLimbEntryBytes) {}

  // Stores a k_step, whose k belong to the lanes; returns this lane's integer.
  __device__ __forceinline__ int store_k_step(int k_step, float x, float factor) const {
    const std::uint32_t number = limb_number(x, factor, 0.0f);
    const std::uint32_t high = limb_word(limb_number(x, factor, 128.0f) >> 8 & 0xffu);
    const std::uint32_t low = limb_word(number & 0xffu);
    const int lane = lane_index();
    if (lane / 8 % 2 == 0) {  // lanes with r = 0: those with e = 0 store the high limbs
      const int at = lane % 2 * kColumnBytes + lane % 8 / 2 * 8 + (lane < 16 ? 4 : 0);
      *reinterpret_cast<std::uint32_t*>(records + k_step * record_bytes + row_at + at) =
          lane % 2 == 0 ? high : low;
    }
    return static_cast<int>(number - __float_as_uint(kWholeNumbers));
  }
  // Stores a k_block of a row, k_step u of which has values[u] at this lane's k. All lanes of the
  // warp take part. `weight` multiplies the row.
  __device__ __forceinline__ void store_k_block(const KBlock& k_block,
                                                const float (&values)[kMaxKBlockSteps],
                                                float weight) const {
    std::uint32_t most = 0;
#pragma unroll
    for (int u = 0; u < kMaxKBlockSteps; ++u) most = max(most, __float_as_uint(fabsf(values[u])));
    const LimbFactor factor(warp_max(most));
    int sum = 0;
#pragma unroll
    for (int u = 0; u < kMaxKBlockSteps; ++u) {
      if (u >= k_block.k_steps) break;
      sum += store_k_step(k_block.first_k_step + u, values[u], factor.factor);
    }
    sum = warp_sum(sum);
    if (lane_index() != 0) return;
    const float scale = factor.scale * weight;
    *reinterpret_cast<float2*>(records + k_block.first_k_step * record_bytes + entry_at) =
        make_float2(scale, scale * static_cast<float>(sum));
  }
};

// Loads the features at this lane's k of a k_block; −1: none.
__device__ __forceinline__ void load_features(const std::int32_t* feature_of_k,
                                              const KBlock& k_block,
                                              int (&features)[kMaxKBlockSteps]) {
  const std::int32_t* of_lane = feature_of_k + k_block.first_k_step * kKStepSize + lane_index();
#pragma unroll
  for (int u = 0; u < kMaxKBlockSteps; ++u) {
    features[u] = u < k_block.k_steps ? of_lane[u * kKStepSize] : -1;
  }
}

// Reads a lane's limbs of a k_block for Tiles token tiles of four rows. Columns 2n and 2n + 1 of
// operand B are the limbs of row n of a tile. Rows that do not exist repeat the last live one, and
// their sums are not used.
template <int Tiles>
class ExpertLimbReader {
 public:
  static constexpr int kTiles = Tiles;
  static constexpr bool kSeparate = true;
  static constexpr bool kClampsNTiles = true;
  static constexpr bool kPlaneByPlane = Tiles > 1;
  static constexpr bool kWhole = true;

  __device__ __forceinline__ explicit ExpertLimbReader(int live)
      : record_bytes_(limb_record_bytes(live)) {
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      const int row = min(n * kLimbRows + lane_index() / 8, live - 1);
      limbs_at_[n] = row * kLimbRowBytes + lane_index() % 8 * 8;
      const int of_sums = min(n * kLimbRows + lane_index() % 4, live - 1);
      scale_at_[n] = live * kLimbRowBytes + of_sums * kLimbEntryBytes;
    }
  }
  // `record`: of the k_block's first k_step.
  __device__ __forceinline__ void open(const std::byte* record) { record_ = record; }
  __device__ __forceinline__ int record_bytes() const { return record_bytes_; }
  // {limb scale, Σx} of the row whose sums of token tile n this lane has.
  __device__ __forceinline__ float2 scale(int n) const {
    return *reinterpret_cast<const float2*>(record_ + scale_at_[n]);
  }
  __device__ __forceinline__ void operands(int k_step, LimbWords (&b)[kTiles]) const {
    const std::byte* record = record_ + k_step * record_bytes_;
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      const uint2 both = *reinterpret_cast<const uint2*>(record + limbs_at_[n]);
      b[n] = {both.x, both.y};
    }
  }
  __device__ __forceinline__ void advance(int k_steps) { record_ += k_steps * record_bytes_; }

 private:
  const std::byte* record_ = nullptr;
  int record_bytes_;
  int limbs_at_[Tiles];
  int scale_at_[Tiles];
};

}  // namespace bl::cuda
