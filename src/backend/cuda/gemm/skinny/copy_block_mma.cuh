#pragma once
// What warps do with the pieces that come out of a ring (copy_block_ring.cuh): each takes chunks in
// turn, and in the end all warps' sums are added up in their order.

#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"
#include "backend/cuda/gemm/skinny/k_block_mma.cuh"

namespace bl::cuda {

// A lane's operands. Lanes of tokens that do not exist have zeros.
template <int TokenTiles>
class InputReader {
 public:
  static constexpr bool kHasSums = false;
  struct KBlockSum {};

  // The strides, in bytes, are from one unit's fragments to the next one's, and one token's.
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
  int tokens_ = 0;  // from this lane's on
};

// The same, with Σx of chunks as they were prepared: [units][columns], of a chunk's first unit.
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
      // Past the first level of the cache, which knows nothing of the kernel before.
      sum.at[n] = __ldcg(reinterpret_cast<const float2*>(sums_ + k_block.first_k_step * columns_ +
                                                         n * kTokenTile));
    }
    return sum;
  }

 private:
  const float* sums_ = nullptr;
  int columns_ = 0;
};

// totals += this warp's chunks of the piece. Chunks go round the warps: `next` is the warp's next
// one, counted from the piece's first.
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

// A warp's sums: `part` is [strips][tokens][16].
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

// Element `e` of all warps' sums, `part` floats apart.
__device__ __forceinline__ float sum_warps(const float* warp_sums, int warp_floats, int e) {
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kConsumerWarps; ++w) sum += warp_sums[w * warp_floats + e];
  return sum;
}

}  // namespace bl::cuda
