#pragma once
// What warps do with the pieces that come out of a ring (piece_ring.cuh): each takes chunks in
// turn, and in the end all warps' sums are added up in their order.

#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/skinny/k_block_mma.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"

namespace bl::cuda {

// Of the multiplying warps alone.
__device__ __forceinline__ void product_sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(kProductThreads) : "memory");
}

// A lane's operands. Lanes of tokens that do not exist have zeros.
template <int Tiles>
class InputReader {
 public:
  static constexpr bool kHasSums = false;
  struct ChunkSum {};

  // The strides, in bytes, are from one unit's fragments to the next one's, and one token's.
  __device__ __forceinline__ void open(const std::byte* fragments, int unit_stride,
                                       int token_stride, int tokens) {
    const int token = lane_index() / 4;
    unit_stride_ = unit_stride;
    from_ = fragments + std::int64_t{token} * token_stride + lane_index() % 4 * 16;
    tile_stride_ = kTokenTile * token_stride;
    tokens_ = tokens - token;
  }
  __device__ __forceinline__ UnitInput<Tiles> operator()(int unit) const {
    const std::byte* from = from_ + unit * unit_stride_;
    UnitInput<Tiles> in;
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      in.x[n] = make_uint4(0, 0, 0, 0);
      if (n * kTokenTile < tokens_) {
        in.x[n] = *reinterpret_cast<const uint4*>(from + n * tile_stride_);
      }
    }
    return in;
  }

 private:
  const std::byte* from_ = nullptr;
  int unit_stride_ = 0;
  int tile_stride_ = 0;
  int tokens_ = 0;  // from this lane's on
};

// The same, with Σx of chunks as they were prepared: [units][columns], of a chunk's first unit.
template <int Tiles>
class SummedInputReader : public InputReader<Tiles> {
 public:
  static constexpr bool kHasSums = true;
  using ChunkSum = InputSum<Tiles>;

  __device__ __forceinline__ void open_sums(const float* sums, int columns) {
    sums_ = sums + lane_index() % 4 * 2;
    columns_ = columns;
  }
  __device__ __forceinline__ ChunkSum sum(const Chunk& chunk) const {
    ChunkSum sum;
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      // Past the first level of the cache, which knows nothing of the kernel before.
      sum.at[n] = __ldcg(
          reinterpret_cast<const float2*>(sums_ + chunk.first_unit * columns_ + n * kTokenTile));
    }
    return sum;
  }

 private:
  const float* sums_ = nullptr;
  int columns_ = 0;
};

// totals += this warp's chunks of the piece. Chunks go round the warps: `next` is the warp's next
// one, counted from the piece's first.
template <int Strips, int Tiles, class Scales, WidthSet kWidths, class Input>
__device__ __forceinline__ void multiply_piece(const CodeMatrixView& m, const PieceView& piece,
                                               const Input& input, int& next,
                                               Sums<Strips, Tiles>& totals) {
  const int lane = lane_index();
  for (; next < piece.chunks; next += kProductWarps) {
    Chunk chunk;
    *reinterpret_cast<uint4*>(&chunk) = piece.chunk_words[next];
    ChunkSums<Strips, Tiles> sums;
    multiply_chunk<kWidths>(
        chunk, {piece.codes + chunk.offset * unit_bytes(1), piece.code_stride, piece.strips}, input,
        sums);
    const Scales scales(m, chunk, lane, 1.0f / kCodeUnit);
    const std::byte* at = piece.scales + chunk.group * Scales::bytes(m.kind);
#pragma unroll
    for (int i = 0; i < Strips; ++i) {
      apply_scales(scales.of(at + min(i, piece.strips - 1) * piece.scale_stride, lane), i, sums,
                   totals);
    }
  }
  next -= piece.chunks;
}

// A warp's sums: `part` is [strips][tokens][16].
template <int Strips, int Tiles>
__device__ __forceinline__ void keep_sums(const Sums<Strips, Tiles>& totals, int tokens,
                                          float* part) {
  const int lane = lane_index();
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int token = n * kTokenTile + 2 * (lane % 4) + c % 2;
      if (token >= tokens) continue;
#pragma unroll
      for (int i = 0; i < Strips; ++i) {
        part[(i * tokens + token) * kStripColumns + 8 * (c / 2) + lane / 4] = totals.at[i][n][c];
      }
    }
}

// Element `e` of all warps' sums, `part` floats apart.
__device__ __forceinline__ float add_parts(const float* parts, int part, int e) {
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kProductWarps; ++w) sum += parts[w * part + e];
  return sum;
}

}  // namespace bl::cuda
