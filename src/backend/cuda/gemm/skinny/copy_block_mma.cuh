#pragma once
// What a consumer warp of the smem pipeline does with the stages (smem_pipeline.cuh): warps take
// turns with the k_blocks, and in the end the sums of all warps are added in a fixed order.

#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"
#include "backend/cuda/gemm/skinny/k_block_mma.cuh"

namespace bl::cuda {

// Reads a lane's activations (operand B). Lanes of tokens that do not exist get zeros.
template <int TokenTiles>
class InputReader {
 public:
  static constexpr bool kHasSums = false;
  struct KBlockSum {};

  // Strides are in bytes: from one k_step's fragments to the next, and from one token's to the
  // next.
  __device__ __forceinline__ void open(const std::byte* fragments, int k_step_stride,
                                       int token_stride, int tokens) {
    const int token = lane_index() / 4;
    k_step_stride_ = k_step_stride;
    from_ = fragments + std::int64_t{token} * token_stride + lane_index() % 4 * 16;
    tile_stride_ = kTokenTile * token_stride;
    tokens_ = tokens - token;
  }
  __device__ __forceinline__ KStepInput<TokenTiles> operator()(int k_step) const {
    const std::byte* from = from_ + k_step * k_step_stride_;
    KStepInput<TokenTiles> in;
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n) {
      in.x[n] = make_uint4(0, 0, 0, 0);
      if (n * kTokenTile < tokens_) {
        in.x[n] = *reinterpret_cast<const uint4*>(from + n * tile_stride_);
      }
    }
    return in;
  }

 private:
  const std::byte* from_ = nullptr;
  int k_step_stride_ = 0;
  int tile_stride_ = 0;
  int tokens_ = 0;  // the number of tokens from this lane's on
};

// Also reads Σx of k_blocks from pack_activations(): [k_steps][columns], at a k_block's first
// k_step.
template <int TokenTiles>
class SummedInputReader : public InputReader<TokenTiles> {
 public:
  static constexpr bool kHasSums = true;
  using KBlockSum = InputSum<TokenTiles>;

  __device__ __forceinline__ void open_sums(const float* sums, int columns) {
    sums_ = sums + lane_index() % 4 * 2;
    columns_ = columns;
  }
  __device__ __forceinline__ KBlockSum sum(const KBlock& k_block) const {
    KBlockSum sum;
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n) {
      // L2 only (ld.cg): L1 may hold data from before the launch in front.
      sum.at[n] = __ldcg(reinterpret_cast<const float2*>(sums_ + k_block.first_k_step * columns_ +
                                                         n * kTokenTile));
    }
    return sum;
  }

 private:
  const float* sums_ = nullptr;
  int columns_ = 0;
};

// totals += this warp's share of the stage's k_blocks: every kConsumerWarps-th from `next` on.
// `next` counts from the stage's first k_block, and is left counting from the next stage's.
template <int NTiles, int TokenTiles, class Scales, WidthSet kWidths, class Input>
__device__ __forceinline__ void multiply_copy_block(const CodeMatrixView& m,
                                                    const StageView& copy_block, const Input& input,
                                                    int& next, Sums<NTiles, TokenTiles>& totals) {
  const int lane = lane_index();
  for (; next < copy_block.k_blocks; next += kConsumerWarps) {
    KBlock k_block;
    *reinterpret_cast<uint4*>(&k_block) = copy_block.k_block_words[next];
    KBlockSums<NTiles, TokenTiles> sums;
    multiply_k_block<kWidths>(k_block,
                              {copy_block.codes + k_block.offset * k_step_bytes(1),
                               copy_block.code_stride, copy_block.n_tiles},
                              input, sums);
    const Scales scales(m, k_block, lane, 1.0f / kCodeOne);
    const std::byte* at = copy_block.scales + k_block.group * Scales::bytes(m.kind);
#pragma unroll
    for (int i = 0; i < NTiles; ++i) {
      apply_scales(scales.of(at + min(i, copy_block.n_tiles - 1) * copy_block.scale_stride, lane),
                   i, sums, totals);
    }
  }
  next -= copy_block.k_blocks;
}

// Stores a warp's sums as [n_tiles][tokens][16].
template <int NTiles, int TokenTiles>
__device__ __forceinline__ void keep_sums(const Sums<NTiles, TokenTiles>& totals, int tokens,
                                          float* warp_floats) {
  const int lane = lane_index();
#pragma unroll
  for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int token = n * kTokenTile + 2 * (lane % 4) + c % 2;
      if (token >= tokens) continue;
#pragma unroll
      for (int i = 0; i < NTiles; ++i) {
        warp_floats[(i * tokens + token) * kNTileColumns + 8 * (c / 2) + lane / 4] =
            totals.at[i][n][c];
      }
    }
}

// Adds element `e` of all warps' sums, which are `warp_floats` floats apart, in a fixed order.
__device__ __forceinline__ float sum_warps(const float* warp_sums, int warp_floats, int e) {
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kConsumerWarps; ++w) sum += warp_sums[w * warp_floats + e];
  return sum;
}

}  // namespace bl::cuda
