#pragma once
// From sums of gate and up to act(gate) · up in memory, when a tile of both (WgmmaTile) is done: a
// warp has a strip of gate, another the same columns of up. Each gives the other one half of its
// rows and makes results of the other half, so that both have as much to do. Or a tile is up's
// alone, and gate is in memory already.

#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/gemm/activations/act_f16.h"
#include "backend/cuda/gemm/wgmma/epilogue_store.cuh"
#include "backend/cuda/ops/activation_math.cuh"

namespace bl::cuda {

// Of a warp, in shared memory: twice 16 rows for the other one, and its own F16StoreTiles.
inline constexpr int kGivenBytes = 32 * 16;
static_assert(kActivateBytes == 2 * kGivenBytes + kF16StoreBytes);

// Where a warp's strip of up goes, whose gate is there.
struct UpNTile {
  std::byte* room = nullptr;  // kF16StoreBytes
  TileRows<const __half> gate;
  TileRows<__half> to;
};

// Two warps of one tile; both call what is below alike.
struct WarpPair {
  std::byte* own = nullptr;    // kActivateBytes
  std::byte* other = nullptr;  // the other's
  int barrier = 0;             // a named one of their own
  bool is_up = false;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void wait_for_other(const WarpPair& pair) {
  asm volatile("bar.sync %0, 64;" ::"r"(pair.barrier) : "memory");
}

// Gate and up pass through binary16, as they would by way of memory.
template <Activation kKind>
__device__ __forceinline__ float activated_half(__half gate, __half up) {
  constexpr float kMeans = 1.0f / kHalfGate;
  return activated<kKind>({}, __half2float(gate) * kMeans, __half2float(up) * kMeans, true);
}

// act(gate) · up of two elements times `factor`; `largest`: of what it was before that.
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

// alpha · sums of kRows rows are kHalfGate times gate or up; results times `factor` go to `to`.
// Returns the largest of this lane's before that.
template <Activation kKind, int kRows>
__device__ __forceinline__ float activate_tile(const float (&sums)[kRows / 2], float out_scale,
                                               const WarpPair& pair, float factor,
                                               TileRows<__half> to) {
  constexpr int kOwnRows = kRows / 2;
  constexpr int kCopyBlocks = kOwnRows / kStoreTileRows;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  std::byte* give = pair.own + lane * 16;
  const std::byte* take = pair.other + lane * 16;
  const int first_row = pair.is_up ? kOwnRows : 0;
  to.to += first_row * to.stride;
  to.rows -= first_row;
  F16StoreTiles store_tiles(pair.own + 2 * kGivenBytes, to);
  // Word i of a piece of the first and of the second half of the rows.
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
  for (int store_tile = 0; store_tile < kCopyBlocks; ++store_tile) {
    // What the other has given is there, and what it was given before this has been read.
    wait_for_other(pair);
    const uint4 taken = *reinterpret_cast<const uint4*>(take + store_tile % 2 * kGivenBytes);
    if (store_tile + 1 < kCopyBlocks) begin(store_tile + 1);
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
  wait_for_other(pair);  // it has read the last piece: the next tile's may come
  return largest;
}

// The same of up alone.
template <Activation kKind, int kRows>
__device__ __forceinline__ float activate_tile(const float (&sums)[kRows / 2], float out_scale,
                                               const UpNTile& n_tile, float factor) {
  constexpr int kCopyBlocks = kRows / kStoreTileRows;
  // Pieces of gate that are asked for before the first is there: it comes from far.
  constexpr int kAhead = kCopyBlocks < 4 ? kCopyBlocks : 4;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  const __half* at = n_tile.gate.to + lane / 2 * n_tile.gate.stride + lane % 2 * 8;
  const int left = n_tile.gate.rows - lane / 2;
  uint4 gates[kAhead];
  const auto issue = [&](int store_tile) {
    const bool is_one = store_tile * kStoreTileRows < left;
    gates[store_tile % kAhead] = is_one ? *reinterpret_cast<const uint4*>(at) : uint4{};
    at += kStoreTileRows * n_tile.gate.stride;
  };
#pragma unroll
  for (int store_tile = 0; store_tile < kAhead; ++store_tile) issue(store_tile);
  F16StoreTiles store_tiles(n_tile.room, n_tile.to);
  float largest = 0.0f;
#pragma unroll
  for (int store_tile = 0; store_tile < kCopyBlocks; ++store_tile) {
    std::uint32_t m[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* of = sums + store_tile * (kStoreTileRows / 2) + 2 * i;
      m[i] = pack_halves(out_scale * of[0], out_scale * of[1]);
    }
    store_tiles.put(store_tile, m, [&](const uint4& up) {
      const uint4 own = gates[store_tile % kAhead];
      if (store_tile + kAhead < kCopyBlocks) issue(store_tile + kAhead);
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
