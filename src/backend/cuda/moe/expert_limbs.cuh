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
