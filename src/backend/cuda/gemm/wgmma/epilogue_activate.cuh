#pragma once
// Epilogue of the wgmma GEMM: act(gate) · up. In a tile of both matrices one warp has an n_tile of
// gate and another the same columns of up. They exchange half of their rows through shared memory,
// so that both compute half of the results. Or the tile is up's alone, and gate is in memory
// already.

#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/gemm/activations/act_f16.h"
#include "backend/cuda/gemm/wgmma/epilogue_store.cuh"
#include "backend/cuda/ops/activation_math.cuh"

namespace bl::cuda {

// Shared memory of a warp: two buffers of 16 rows for the other warp, and its own F16StoreTiles.
inline constexpr int kGivenBytes = 32 * 16;
static_assert(kActivateBytes == 2 * kGivenBytes + kF16StoreBytes);

// A warp's n_tile of up, when gate is in memory.
struct UpNTile {
  std::byte* room = nullptr;  // kF16StoreBytes
  TileRows<const __half> gate;
  TileRows<__half> to;
};

// Two warps that share a tile and call the functions below together.
struct WarpPair {
  std::byte* own = nullptr;    // this warp's kActivateBytes
  std::byte* other = nullptr;  // the other warp's
  int barrier = 0;             // named barrier of these two warps
  bool is_up = false;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void wait_for_other(const WarpPair& pair) {
  asm volatile("bar.sync %0, 64;" ::"r"(pair.barrier) : "memory");
}

// Gate and up pass through binary16, as they do where they go through memory.
template <Activation kKind>
__device__ __forceinline__ float activated_half(__half gate, __half up) {
  constexpr float kMeans = 1.0f / kHalfGate;
  return activated<kKind>({}, __half2float(gate) * kMeans, __half2float(up) * kMeans, true);
}

// act(gate) · up of two elements, times `factor`. Raises `largest` to the magnitudes before
// `factor`.
template <Activation kKind>
__device__ __forceinline__ std::uint32_t activated_pair(std::uint32_t gate, std::uint32_t up,
                                                        float factor, float& largest) {
  const __half2 gates = halves_of(gate);
  const __half2 ups = halves_of(up);
  const float low = activated_half<kKind>(__low2half(gates), __low2half(ups));
  const float high = activated_half<kKind>(__high2half(gates), __high2half(ups));
  largest = fmaxf(largest, fmaxf(fabsf(low), fabsf(high)));
  return pack_halves(low * factor, high * factor);
}

// Activates kRows rows: out_scale · sums is kHalfGate times gate (one warp) or up (the other).
// Stores the results times `factor` to `to`. Returns the lane's largest magnitude before `factor`.
template <Activation kKind, int kRows>
__device__ __forceinline__ float activate_tile(const float (&sums)[kRows / 2], float out_scale,
                                               const WarpPair& pair, float factor,
                                               TileRows<__half> to) {
  constexpr int kOwnRows = kRows / 2;
  constexpr int kStoreTiles = kOwnRows / kStoreTileRows;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  std::byte* give = pair.own + lane * 16;
  const std::byte* take = pair.other + lane * 16;
  const int first_row = pair.is_up ? kOwnRows : 0;
  to.to += first_row * to.stride;
  to.rows -= first_row;
  F16StoreTiles store_tiles(pair.own + 2 * kGivenBytes, to);
  // Returns word i of a store tile in the first or the second half of the rows.
  const auto word = [&](int store_tile, int i, bool second) {
    const float* of = sums + (second ? kRows / 4 : 0) + store_tile * (kStoreTileRows / 2) + 2 * i;
    return pack_halves(out_scale * of[0], out_scale * of[1]);
  };
  std::uint32_t own[2][4];
  const auto begin = [&](int store_tile) {
    std::uint32_t given[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t first = word(store_tile, i, false);
      const std::uint32_t second = word(store_tile, i, true);
      own[store_tile % 2][i] = pair.is_up ? second : first;
      given[i] = pair.is_up ? first : second;
    }
    *reinterpret_cast<uint4*>(give + store_tile % 2 * kGivenBytes) = {given[0], given[1], given[2],
                                                                      given[3]};
  };
  float largest = 0.0f;
  begin(0);
#pragma unroll
  for (int store_tile = 0; store_tile < kStoreTiles; ++store_tile) {
    // The other warp has written its words, and has read those of the step before.
    wait_for_other(pair);
    const uint4 taken = *reinterpret_cast<const uint4*>(take + store_tile % 2 * kGivenBytes);
    if (store_tile + 1 < kStoreTiles) begin(store_tile + 1);
    const std::uint32_t others[4] = {taken.x, taken.y, taken.z, taken.w};
    std::uint32_t results[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t mine = own[store_tile % 2][i];
      results[i] = activated_pair<kKind>(pair.is_up ? others[i] : mine,
                                         pair.is_up ? mine : others[i], factor, largest);
    }
    store_tiles.put(store_tile, results);
  }
  store_tiles.finish();
  wait_for_other(pair);  // the other warp has read our last words: the next tile may overwrite them
  return largest;
}

// As above for up alone, whose gate is loaded from memory.
template <Activation kKind, int kRows>
__device__ __forceinline__ float activate_tile(const float (&sums)[kRows / 2], float out_scale,
                                               const UpNTile& n_tile, float factor) {
  constexpr int kStoreTiles = kRows / kStoreTileRows;
  // Store tiles whose gates are loaded ahead, to hide the latency of memory.
  constexpr int kAhead = kStoreTiles < 4 ? kStoreTiles : 4;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  const __half* at = n_tile.gate.to + lane / 2 * n_tile.gate.stride + lane % 2 * 8;
  const int left = n_tile.gate.rows - lane / 2;
  uint4 gates[kAhead];
  const auto issue = [&](int store_tile) {
    const bool exists = store_tile * kStoreTileRows < left;
    gates[store_tile % kAhead] = exists ? *reinterpret_cast<const uint4*>(at) : uint4{};
    at += kStoreTileRows * n_tile.gate.stride;
  };
#pragma unroll
  for (int store_tile = 0; store_tile < kAhead; ++store_tile) issue(store_tile);
  F16StoreTiles store_tiles(n_tile.room, n_tile.to);
  float largest = 0.0f;
#pragma unroll
  for (int store_tile = 0; store_tile < kStoreTiles; ++store_tile) {
    std::uint32_t m[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* of = sums + store_tile * (kStoreTileRows / 2) + 2 * i;
      m[i] = pack_halves(out_scale * of[0], out_scale * of[1]);
    }
    store_tiles.put(store_tile, m, [&](const uint4& up) {
      const uint4 own = gates[store_tile % kAhead];
      if (store_tile + kAhead < kStoreTiles) issue(store_tile + kAhead);
      return uint4{activated_pair<kKind>(own.x, up.x, factor, largest),
                   activated_pair<kKind>(own.y, up.y, factor, largest),
                   activated_pair<kKind>(own.z, up.z, factor, largest),
                   activated_pair<kKind>(own.w, up.w, factor, largest)};
    });
  }
  store_tiles.finish();
  return largest;
}

#endif

}  // namespace bl::cuda
