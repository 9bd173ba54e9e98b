#pragma once
// From sums of gate and up to act(gate) · up in memory, when a tile of both (TilePlace) is done: a
// warp has a strip of gate, another the same columns of up. Each gives the other one half of its
// rows and makes results of the other half, so that both have as much to do. Or a tile is up's
// alone, and gate is in memory already.

#include "backend/cuda/ops/activation_math.cuh"
#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/gemm/activations/act_f16.h"
#include "backend/cuda/gemm/wgmma/epilogue_store.cuh"

namespace bl::cuda {

// Of a warp, in shared memory: twice 16 rows for the other one, and its own HalfPieces.
inline constexpr int kGivenBytes = 32 * 16;
inline constexpr int kActivateBytes = 2 * kGivenBytes + kHalfPiecesBytes;

// Where a warp's strip of up goes, whose gate is there.
struct UpStrip {
  std::byte* room = nullptr;  // kHalfPiecesBytes
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
__device__ __forceinline__ float activate_tile(const float (&sums)[kRows / 2], float alpha,
                                               const WarpPair& pair, float factor,
                                               TileRows<__half> to) {
  constexpr int kOwnRows = kRows / 2;
  constexpr int kPieces = kOwnRows / kPieceRows;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  std::byte* give = pair.own + lane * 16;
  const std::byte* take = pair.other + lane * 16;
  const int first_row = pair.is_up ? kOwnRows : 0;
  to.to += first_row * to.stride;
  to.rows -= first_row;
  HalfPieces pieces(pair.own + 2 * kGivenBytes, to);
  // Word i of a piece of the first and of the second half of the rows.
  const auto word = [&](int piece, int i, bool second) {
    const float* of = sums + (second ? kRows / 4 : 0) + piece * (kPieceRows / 2) + 2 * i;
    return pack_halves(alpha * of[0], alpha * of[1]);
  };
  std::uint32_t own[2][4];
  const auto begin = [&](int piece) {
    std::uint32_t given[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t first = word(piece, i, false);
      const std::uint32_t second = word(piece, i, true);
      own[piece % 2][i] = pair.is_up ? second : first;
      given[i] = pair.is_up ? first : second;
    }
    *reinterpret_cast<uint4*>(give + piece % 2 * kGivenBytes) = {given[0], given[1], given[2],
                                                                 given[3]};
  };
  float largest = 0.0f;
  begin(0);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    // What the other has given is there, and what it was given before this has been read.
    wait_for_other(pair);
    const uint4 taken = *reinterpret_cast<const uint4*>(take + piece % 2 * kGivenBytes);
    if (piece + 1 < kPieces) begin(piece + 1);
    const std::uint32_t others[4] = {taken.x, taken.y, taken.z, taken.w};
    std::uint32_t results[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t mine = own[piece % 2][i];
      results[i] = activated_pair<kKind>(pair.is_up ? others[i] : mine,
                                         pair.is_up ? mine : others[i], factor, largest);
    }
    pieces.put(piece, results);
  }
  pieces.finish();
  wait_for_other(pair);  // it has read the last piece: the next tile's may come
  return largest;
}

// The same of up alone.
template <Activation kKind, int kRows>
__device__ __forceinline__ float activate_tile(const float (&sums)[kRows / 2], float alpha,
                                               const UpStrip& strip, float factor) {
  constexpr int kPieces = kRows / kPieceRows;
  // Pieces of gate that are asked for before the first is there: it comes from far.
  constexpr int kAhead = kPieces < 4 ? kPieces : 4;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  const __half* at = strip.gate.to + lane / 2 * strip.gate.stride + lane % 2 * 8;
  const int left = strip.gate.rows - lane / 2;
  uint4 gates[kAhead];
  const auto ask = [&](int piece) {
    const bool is_one = piece * kPieceRows < left;
    gates[piece % kAhead] = is_one ? *reinterpret_cast<const uint4*>(at) : uint4{};
    at += kPieceRows * strip.gate.stride;
  };
#pragma unroll
  for (int piece = 0; piece < kAhead; ++piece) ask(piece);
  HalfPieces pieces(strip.room, strip.to);
  float largest = 0.0f;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    std::uint32_t m[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* of = sums + piece * (kPieceRows / 2) + 2 * i;
      m[i] = pack_halves(alpha * of[0], alpha * of[1]);
    }
    pieces.put(piece, m, [&](const uint4& up) {
      const uint4 own = gates[piece % kAhead];
      if (piece + kAhead < kPieces) ask(piece + kAhead);
      return uint4{activated_pair<kKind>(own.x, up.x, factor, largest),
                   activated_pair<kKind>(own.y, up.y, factor, largest),
                   activated_pair<kKind>(own.z, up.z, factor, largest),
                   activated_pair<kKind>(own.w, up.w, factor, largest)};
    });
  }
  pieces.finish();
  return largest;
}

#endif

}  // namespace bl::cuda
