#pragma once
// What one warp multiplies in the skinny kernels: codes are decoded in registers into operand A of
// mma.m16n8k16 (code_matrix.h says how codes lie and why). The matrix's columns are the rows of A,
// and tokens are the columns of B.
//
// Codes enter as subnormal halves, code · 2^-24, which tensor cores multiply exactly; scales and
// zero points are applied to the F32 sums at the end of a k_block.
//
// A warp multiplies the same k_block of several n_tiles at once: they share the activations, and
// give the tensor cores independent sums.

#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/layout/code_fragments.cuh"
#include "backend/cuda/layout/gemm_limits.h"

namespace bl::cuda {

// Sums of NTiles · 16 columns × 8 · TokenTiles tokens: element c of lane 4g + t is column 8 (c / 2)
// + g of its n_tile, token 2t + c % 2 of its token tile.
template <int NTiles, int TokenTiles>
struct Sums {
  float at[NTiles][TokenTiles][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int s = 0; s < NTiles; ++s)
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) at[s][n][c] = 0.0f;
  }
};

// Sums over one k_block, in multiples of kCodeOne.
template <int NTiles, int TokenTiles>
struct KBlockSums {
  Sums<NTiles, TokenTiles> codes;
  // Σx of this lane's tokens 2t (even elements) and 2t + 1 (odd elements).
  float x[TokenTiles][4];
  __device__ __forceinline__ void clear() {
    codes.clear();
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) x[n][c] = 0.0f;
  }
};

// Where the codes of a k_block lie, n_tile by n_tile. N_tiles beyond the last valid one repeat it
// and their results are not used, which is cheaper than branches.
struct KBlockCodes {
  const std::byte* first = nullptr;  // of the first n_tile
  int stride = 0;                    // bytes to the next n_tile
  int n_tiles = 0;                   // valid ones, at least one
  __device__ __forceinline__ const std::byte* n_tile(int i) const {
    return first + min(i, n_tiles - 1) * stride;
  }
};

// Σx of a k_block in multiples of kCodeOne, for a lane's tokens 2t and 2t + 1 of each token tile.
template <int TokenTiles>
struct InputSum {
  float2 at[TokenTiles];
};

// A lane's operand B of one k_step: registers 2s + r hold k = 16s + 8r + 2t + e of token g.
template <int TokenTiles>
struct KStepInput {
  uint4 x[TokenTiles];
};

// Adds Σx, as a product with a matrix of codes 1.
template <int NTiles, int TokenTiles>
__device__ __forceinline__ void add_input(const KStepInput<TokenTiles>& in,
                                          KBlockSums<NTiles, TokenTiles>& sums) {
  constexpr std::uint32_t kOne = 0x00010001u;
  const std::uint32_t first[4] = {kOne, kOne, kOne, kOne};
  const std::uint32_t second[4] = {kOne << 4, kOne << 4, kOne << 4, kOne << 4};
#pragma unroll
  for (int n = 0; n < TokenTiles; ++n) {
    mma_16x8x16(sums.x[n], first, in.x[n].x, in.x[n].y);
    mma_16x8x16(sums.x[n], second, in.x[n].z, in.x[n].w);
  }
}

// sums += codes · x over one k_step. kAddInput: adds Σx too.
template <int Bits, int Stride, bool kAddInput, int NTiles, int TokenTiles>
__device__ __forceinline__ void add_k_step(const KBlockCodes& codes, int k_step,
                                           const KStepInput<TokenTiles>& in,
                                           KBlockSums<NTiles, TokenTiles>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < NTiles; ++i) {
    CodeFragment<Bits> k_step_codes;
    k_step_codes.load(codes.n_tile(i) + k_step * Stride, lane);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const std::uint32_t a[4] = {k_step_codes.pair(0, 0, s), k_step_codes.pair(1, 0, s),
                                  k_step_codes.pair(0, 1, s), k_step_codes.pair(1, 1, s)};
#pragma unroll
      for (int n = 0; n < TokenTiles; ++n) {
        mma_16x8x16(sums.codes.at[i][n], a, s == 0 ? in.x[n].x : in.x[n].z,
                    s == 0 ? in.x[n].y : in.x[n].w);
      }
    }
  }
  if constexpr (kAddInput) add_input(in, sums);
}

// Adds all k_steps of a k_block of `Bits`-bit codes, `Stride` bytes apart, so that one plane of
// wider codes can be multiplied too. `input(k_step)`: operand B of that k_step of the n_tile.
template <int Bits, int Stride, int NTiles, int TokenTiles, class Input>
__device__ __forceinline__ void add_k_steps(const KBlock& k_block, const KBlockCodes& codes,
                                            const Input& input,
                                            KBlockSums<NTiles, TokenTiles>& sums) {
  if (k_block.k_steps == kMaxKBlockSteps) {
#pragma unroll
    for (int u = 0; u < kMaxKBlockSteps; ++u) {
      add_k_step<Bits, Stride, !Input::kHasSums>(codes, u, input(k_block.first_k_step + u), sums);
    }
    return;
  }
#pragma unroll 1
  for (int u = 0; u < k_block.k_steps; ++u) {  // short groups, or the end of one
    add_k_step<Bits, Stride, !Input::kHasSums>(codes, u, input(k_block.first_k_step + u), sums);
  }
}

// sums = codes · x over one k_block. Σx comes from the input if it has it, else it is computed
// here. kWidths: the widths that occur.
template <WidthSet kWidths, int NTiles, int TokenTiles, class Input>
__device__ __forceinline__ void multiply_k_block(const KBlock& k_block, const KBlockCodes& codes,
                                                 const Input& input,
                                                 KBlockSums<NTiles, TokenTiles>& sums) {
  sums.clear();
  typename Input::KBlockSum x;
  if constexpr (Input::kHasSums) x = input.sum(k_block);
  const auto add = [&]<int kBits>(std::integral_constant<int, kBits>) {
    if constexpr (has_width(kWidths, kBits)) {
      add_k_steps<kBits, k_step_bytes(kBits)>(k_block, codes, input, sums);
    }
  };
  if (is_width<4, kWidths>(k_block.bits)) {
    add(std::integral_constant<int, 4>{});
  } else if (is_width<5, kWidths>(k_block.bits)) {
    add(std::integral_constant<int, 5>{});
  } else if (is_width<6, kWidths>(k_block.bits)) {
    add(std::integral_constant<int, 6>{});
  } else if (is_width<3, kWidths>(k_block.bits)) {
    add(std::integral_constant<int, 3>{});
  } else if (is_width<2, kWidths>(k_block.bits)) {
    add(std::integral_constant<int, 2>{});
  } else if constexpr (has_width(kWidths, 8)) {  // the high nibbles, times 16, then the low ones
    add_k_steps<4, k_step_bytes(8)>(k_block, codes, input, sums);
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        sums.x[n][c] = 0.0f;
#pragma unroll
        for (int i = 0; i < NTiles; ++i) sums.codes.at[i][n][c] *= 16.0f;
      }
    add_k_steps<4, k_step_bytes(8)>(
        k_block, {codes.first + k_step_bytes(4), codes.stride, codes.n_tiles}, input, sums);
  }
  if constexpr (Input::kHasSums) {
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n) sums.x[n][0] = x.at[n].x, sums.x[n][1] = x.at[n].y;
  }
}

// totals += scale · (sums − zero · Σx) for one n_tile of a k_block.
template <int NTiles, int TokenTiles>
__device__ __forceinline__ void apply_scales(const LaneScales& scales, int n_tile,
                                             const KBlockSums<NTiles, TokenTiles>& sums,
                                             Sums<NTiles, TokenTiles>& totals) {
#pragma unroll
  for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      totals.at[n_tile][n][c] += scales.scale[c / 2] * (sums.codes.at[n_tile][n][c] -
                                                        scales.zero[c / 2] * sums.x[n][c % 2]);
    }
}

}  // namespace bl::cuda
