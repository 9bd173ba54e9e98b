#pragma once
// Epilogue of the wgmma GEMM: from a warp's sums to rows in memory. In wgmma's accumulators a lane
// has one column; they are transposed through shared memory of the warp's own, since the tensor
// cores idle meanwhile and lane shuffles took a fifteenth of all time
// (bench/ladder/gemm_wgmma_dequant.md).

#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/device/shared_address.cuh"
#include "backend/cuda/gemm/wgmma/wgmma_plan.h"
#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

// Shared memory of a warp: two buffers of 8 rows of F32, padded against bank conflicts, or of 16
// rows of halves. With two buffers a write needs no barrier: the buffer that it overwrites was read
// two steps before.
inline constexpr int kStoreRows = 8;
inline constexpr int kStoreRowBytes = (kNTileColumns + 4) * 4;
static_assert(kStoreBytes == 2 * kStoreRows * kStoreRowBytes);
inline constexpr int kStoreTileRows = 2 * kStoreRows;  // of halves
inline constexpr int kF16StoreBytes = 2 * kStoreTileRows * kNTileColumns * 2;
static_assert(kF16StoreBytes <= kStoreBytes);

// Where a warp's sums go: rows [0, rows) and columns [0, columns) of its n_tile in a tile.
template <class T>
struct TileRows {
  T* to = nullptr;
  std::int64_t stride = 0;  // elements
  int rows = 0;
  int columns = 0;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// *to = values, or *to += values in L2 (red), so that nobody waits for the old values.
__device__ __forceinline__ void store_or_add(float* to, const float4& values, bool stores,
                                             bool adds) {
  asm volatile(
      "{\n.reg .pred stores, adds;\nsetp.ne.b32 stores, %5, 0;\nsetp.ne.b32 adds, %6, 0;\n"
      "@stores st.global.v4.f32 [%0], {%1, %2, %3, %4};\n"
      "@adds red.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n}" ::"l"(to),
      "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w), "r"(static_cast<int>(stores)),
      "r"(static_cast<int>(adds))
      : "memory");
}

// Stores four transposed 8×8 matrices of halves as rows of 16 bytes: lane l passes the address of
// row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_transposed(std::uint32_t to, const std::uint32_t (&m)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
               : "memory");
}

// Stores halves as rows in memory, in store tiles of 16 rows, 16 bytes of a row a lane. All lanes
// of a warp call together, with the numbers of the store tiles as constants, in order from 0.
class F16StoreTiles {
 public:
  // `room`: the warp's kF16StoreBytes.
  __device__ __forceinline__ F16StoreTiles(std::byte* room, const TileRows<__half>& to)
      : stride_(to.stride) {
    const auto lane = static_cast<int>(threadIdx.x) % 32;
    // The two halves of a row are swapped every four rows, so that eight rows cover all banks.
    const auto place = [room](int row, int half) {
      return room + row * kRowBytes + (half ^ (row / 4 & 1)) * 16;
    };
    write_ = shared_address(place(lane / 16 * 8 + lane % 8, lane / 8 % 2));
    read_ = place(lane / 2, lane % 2);
    left_ = to.rows - lane / 2;
    at_ = to.to + lane / 2 * to.stride + lane % 2 * 8;
  }
  // `m`: registers as wgmma leaves them: two rows of two column blocks, then the next eight rows.
  __device__ __forceinline__ void put(int store_tile, const std::uint32_t (&m)[4]) {
    put(store_tile, m, [](const uint4& eight) { return eight; });
  }
  // `change`: maps the lane's eight halves of a row (row lane / 2 of the store tile) to what is
  // stored.
  template <class F>
  __device__ __forceinline__ void put(int store_tile, const std::uint32_t (&m)[4],
                                      const F& change) {
    const int buffer = store_tile % 2 * kStoreTileBytes;
    store_transposed(write_ + buffer, m);
    __syncwarp();  // also lets the buffer be written again: all lanes have read it by the next call
    const uint4 eight = change(*reinterpret_cast<const uint4*>(read_ + buffer));
    if (store_tile > 0) finish();
    before_ = eight;
  }
  __device__ __forceinline__ void finish() {
    if (left_ > 0) *reinterpret_cast<uint4*>(at_) = before_;
    left_ -= kStoreTileRows;
    at_ += kStoreTileRows * stride_;
  }

 private:
  static constexpr int kRowBytes = kNTileColumns * 2;
  static constexpr int kStoreTileBytes = kStoreTileRows * kRowBytes;
  static_assert(2 * kStoreTileBytes == kF16StoreBytes);

  std::int64_t stride_;
  std::uint32_t write_;
  const std::byte* read_;
  int left_;
  __half* at_;
  uint4 before_{};
};

// Stores out_scale · sums of kRows rows as halves. `room`: the warp's kStoreBytes.
template <int kRows>
__device__ __forceinline__ void store_sums(const float (&sums)[kRows / 2], float out_scale,
                                           std::byte* room, const TileRows<__half>& to) {
  F16StoreTiles store_tiles(room, to);
#pragma unroll
  for (int store_tile = 0; store_tile < kRows / kStoreTileRows; ++store_tile) {
    std::uint32_t m[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* of = sums + store_tile * (kStoreTileRows / 2) + 2 * i;
      m[i] = pack_halves(out_scale * of[0], out_scale * of[1]);
    }
    store_tiles.put(store_tile, m);
  }
  store_tiles.finish();
}

// Stores them as F32, or adds them if `accumulate`. Every element is added to only once (red), so
// the result does not depend on the order.
template <int kRows>
__device__ __forceinline__ void store_sums(const float (&sums)[kRows / 2], float out_scale,
                                           std::byte* room, const TileRows<float>& to,
                                           bool accumulate) {
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  std::byte* write = room + lane % 4 * 2 * kStoreRowBytes + lane / 4 * 4;
  // Rows r and r + 4 are in different banks, adjacent rows are not.
  const int row = lane / 8 + lane / 4 % 2 * 4;
  const int column = lane % 4 * 4;
  const std::byte* read = room + row * kStoreRowBytes + column * 4;
  const int left = column < to.columns ? to.rows - row : 0;
  const int stored = accumulate ? 0 : left;
  const int added = accumulate ? left : 0;
  float* at = to.to + row * to.stride + column;
  float4 before{};
#pragma unroll
  for (int first = 0; first <= kRows; first += kStoreRows) {
    float4 four{};
    if (first < kRows) {
      const int buffer = first / kStoreRows % 2 * kStoreRows * kStoreRowBytes;
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // as wgmma leaves them: two rows of two column blocks
        const float value = out_scale * sums[first / 2 + i];
        *reinterpret_cast<float*>(write + buffer + i % 2 * kStoreRowBytes + i / 2 * 8 * 4) = value;
      }
      __syncwarp();
      four = *reinterpret_cast<const float4*>(read + buffer);
    }
    if (first > 0) {
      const int of_tile = first - kStoreRows;
      store_or_add(at, before, of_tile < stored, of_tile < added);
      at += kStoreRows * to.stride;
    }
    before = four;
  }
}

#endif

}  // namespace bl::cuda
