#pragma once
// What a consumer warp multiplies of a stage of codes in the kernels of experts: every parts-th
// k_block of a few n_tiles, by rows that were packed as limbs (expert_limbs.cuh).

#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"
#include "backend/cuda/moe/expert_limbs.cuh"

namespace bl::cuda {

// Shared memory of a CTA that no launch asks for: static variables, and the system's.
inline constexpr int kReservedItemBytes = 3072;

// A barrier of the `parts` warps that share the n_tiles of a group.
__device__ __forceinline__ void group_barrier(int group, int parts) {
  asm volatile("bar.sync %0, %1;" ::"r"(2 + group), "r"(32 * parts) : "memory");
}

// A warp's part of the stages of an item.
struct StageShare {
  int first_n_tile;  // in the item
  int parts;         // warps that take turns with the k_blocks
  ScaleKind kind;    // of the codes
  int zero;          // likewise, see CodeMatrixView
};

// Scales of experts that all have codes of one kind, which is uniform in a launch.
template <bool kExl2>
struct UniformScales;

template <>
struct UniformScales<true> : ExlScales {
  __device__ __forceinline__ UniformScales(const StageShare&, const KBlock& k_block, int lane)
      : ExlScales(CodeMatrixView{}, k_block, lane, 1.0f) {}
};

template <>
struct UniformScales<false> : GptqScales {
  __device__ __forceinline__ UniformScales(const StageShare& p, const KBlock&, int)
      : GptqScales(p.kind, static_cast<float>(p.zero), 1.0f) {}
};

// totals[h] += scale · (number · limb scale − zero · Σx) for one n_tile and token tile of a
// k_block.
__device__ __forceinline__ void add_scaled(const LaneScales& scales, const float2& limb_scale,
                                           const int (&sums)[4], float (&totals)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    // Fits into 32 bits with codes of any width, since halves were separated.
    const auto number = static_cast<float>(sums[2 * h] * 256 + sums[2 * h + 1]);
    totals[h] += scales.scale[h] * (number * limb_scale.x - scales.zero[h] * limb_scale.y);
  }
}

// A lane's sums of NTiles n_tiles and Tiles token tiles: columns 8h + lane / 4 of row lane % 4.
template <int NTiles, int Tiles>
struct StreamTotals {
  float at[NTiles][Tiles][2];

  // Stores the warp's sums as [n_tiles][live rows][16].
  __device__ __forceinline__ void keep(int live, float* to) const {
    const int lane = lane_index();
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      const int row = n * kLimbRows + lane % 4;
      if (row >= live) continue;
#pragma unroll
      for (int i = 0; i < NTiles; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          to[(i * live + row) * kNTileColumns + 8 * h + lane / 4] = at[i][n][h];
        }
    }
  }
};

// The codes and scales of one k_block of a few n_tiles in shared memory, and their strides between
// n_tiles.
struct StagedKBlock {
  const std::byte* codes;
  const std::byte* scales;
  int code_stride;
  int scale_stride;
  int n_tiles;
};

// totals += one k_block. `input` is open at its first k_step.
template <bool kExl2, int NTiles, int Tiles>
__device__ __forceinline__ void multiply_k_block(const StageShare& share, const KBlock& k_block,
                                                 const StagedKBlock& from,
                                                 ExpertLimbReader<Tiles>& input,
                                                 StreamTotals<NTiles, Tiles>& totals) {
  const int lane = lane_index();
  LimbSums<NTiles * Tiles> sums;
  multiply_limbs<kAllWidths>(
      k_block.bits, {from.codes, from.code_stride, from.n_tiles, k_block.k_steps}, input, sums);
  const UniformScales<kExl2> of_group(share, k_block, lane);
#pragma unroll
  for (int i = 0; i < NTiles; ++i) {
    const LaneScales of =
        of_group.of(from.scales + min(i, from.n_tiles - 1) * from.scale_stride, lane);
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      add_scaled(of, input.scale(n), sums.at[i * Tiles + n], totals.at[i][n]);
    }
  }
}

// totals += this warp's k_blocks of a stage, from `next` on, which counts from the stage's first
// k_block and is left counting from the next stage's.
template <bool kExl2, int NTiles, int Tiles>
__device__ __forceinline__ void multiply_stage(const StageShare& share, const StageView& view,
                                               ExpertLimbReader<Tiles>& input, int& next,
                                               StreamTotals<NTiles, Tiles>& totals) {
  const int n_tiles = min(NTiles, view.n_tiles - share.first_n_tile);
  const std::byte* codes = view.codes + share.first_n_tile * view.code_stride;
  const std::byte* scales = view.scales + share.first_n_tile * view.scale_stride;
  for (; next < view.k_blocks; next += share.parts) {
    KBlock k_block;
    *reinterpret_cast<uint4*>(&k_block) = view.k_block_words[next];
    input.open(view.fragments + k_block.first_k_step * input.record_bytes());
    multiply_k_block<kExl2>(share, k_block,
                            {codes + k_block.offset * k_step_bytes(1),
                             scales + k_block.group * UniformScales<kExl2>::bytes(share.kind),
                             view.code_stride, view.scale_stride, n_tiles},
                            input, totals);
  }
  next -= view.k_blocks;
}

}  // namespace bl::cuda
