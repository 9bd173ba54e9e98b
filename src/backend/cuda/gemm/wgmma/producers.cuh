#pragma once
// What the first warpgroup of a CTA of a product of many rows (tile_product.cu) brings to those
// that multiply: a warp rows, another codes, two more the scales of either unit of a step.

#include <cuda.h>

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/cluster.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/wgmma/tiles.cuh"

namespace bl::cuda {

// Of the matrices' rows.
struct RowMaps {
  CUtensorMap of[kMaxMatrices];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The warp that asks for rows.
template <class Shape>
__device__ __forceinline__ void fetch_rows(const TileLaunch& launch, const RowMaps& maps,
                                           std::byte* memory, TileBarriers& barriers) {
  if (lane_index() != 0) return;
  constexpr int kOwnRows = Shape::kRows / Shape::kCluster;
  const int own = cta_of_tile_cluster<Shape>();
  std::byte* to = memory + own * (Shape::kStepBytes / Shape::kCluster);
  TileStage stage;
  dependency_wait();
  for_each_tile<Shape>(launch, [&](const TilePlace<Shape>& tile) {
    const CUtensorMap* rows = &maps.of[tile.matrix];
    for (int fill = tile.first_fill; fill < tile.first_fill + tile.fills; ++fill) {
      std::uint64_t* there = &barriers.there[stage.index];
      barrier_wait(&barriers.used[stage.index], stage.phase ^ 1u);
      barrier_expect(there, Shape::kRowsBytes);
#pragma unroll
      for (int s = 0; s < Shape::kFillSteps; ++s) {
        const int step = fill * Shape::kFillSteps + s;
        tensor_copy_to_all(to + stage.index * launch.stage_bytes + s * Shape::kStepBytes, rows,
                           {step * kStepUnits * kUnitSlots, tile.first_row + own * kOwnRows}, there,
                           (1u << Shape::kCluster) - 1);
      }
      stage.next(launch.stages);
    }
  });
}

// The warp that asks for codes: every strip's are brought by two or four lanes. That is some 50
// instructions a step of large tiles, where a bulk copy a strip was 360, which all else waited for.
template <class Shape, bool kPaired>
__device__ __forceinline__ void fetch_codes(const TileLaunch& launch, std::byte* memory,
                                            TileBarriers& barriers) {
  constexpr int kLanes = 32 / Shape::kStrips;  // of a strip
  const int strip = lane_index() / kLanes;
  const int first = lane_index() % kLanes * 16;
  std::byte* to = memory + Shape::kRowsBytes + strip * launch.strip_room + first;
  TileStage stage;
  for_each_tile<Shape>(launch, [&](const TilePlace<Shape>& tile) {
    const int matrix = tile.template matrix_of<kPaired>(strip);
    const CodeMatrixView& m = launch.args.matrices[matrix].view;
    const UnitTable table = table_of(launch, memory, matrix);
    // Warps without a strip multiply what the last one's have.
    const int own = min(tile.template strip_of<kPaired>(strip), m.strips - 1);
    const std::byte* codes = m.codes + own * m.strip_bytes + first;
    std::uint32_t from = table.entries[tile.first_fill * Shape::kFillUnits].offset * 64;
    for (int fill = tile.first_fill; fill < tile.first_fill + tile.fills; ++fill) {
      const std::uint32_t end = table.entries[(fill + 1) * Shape::kFillUnits].offset * 64;
      std::byte* place = to + stage.index * launch.stage_bytes;
      barrier_wait(&barriers.used[stage.index], stage.phase ^ 1u);
#pragma unroll 4
      for (; from < end; from += kLanes * 16) {
        copy_small(place, codes + from);
        place += kLanes * 16;
      }
      barrier_arrive_behind_copies(&barriers.there[stage.index]);
      stage.next(launch.stages);
    }
  });
}

// The warp that makes scales of unit `u` of each step.
template <class Shape, bool kGptq, bool kPaired>
__device__ __forceinline__ void make_scales(const TileLaunch& launch, std::byte* memory,
                                            TileBarriers& barriers, int u) {
  using Maker = ScaleMaker<kGptq, Shape::kStrips>;
  constexpr int kMakers = Shape::kStrips / Maker::kStripsAtOnce;
  // What all of them read, but where they have other matrices.
  constexpr int kTables = kPaired ? kMakers : 1;
  const int strip = lane_index() / 4;  // of a maker's
  TileStage stage;
  Maker makers[kMakers];
  for_each_tile<Shape>(launch, [&](const TilePlace<Shape>& tile) {
    const UnitEntry* entries[kTables];
    int groups[kTables];
    if (u == 0) {
#pragma unroll
      for (int i = 0; i < (kPaired ? 2 : 1); ++i) {
        const CodeMatrixView& m = launch.args.matrices[kPaired ? i : tile.matrix].view;
        ask_for_scales(m, tile.first_strip, Shape::kStrips / (kPaired ? 2 : 1));
      }
    }
#pragma unroll
    for (int i = 0; i < kMakers; ++i) {
      const int own = i * Maker::kStripsAtOnce + strip;
      const int matrix = tile.template matrix_of<kPaired>(own);
      if (i < kTables) {
        entries[i] = table_of(launch, memory, matrix).entries;
        groups[i] = entries[i][tile.first_fill * Shape::kFillUnits + u].group;
      }
      makers[i].open(launch.args.matrices[matrix].view, tile.template strip_of<kPaired>(own), own);
      makers[i].load(groups[i % kTables]);
    }
    for (int fill = tile.first_fill; fill < tile.first_fill + tile.fills; ++fill) {
      auto* to = reinterpret_cast<TileScales<kGptq, Shape::kStrips>*>(
          memory + stage.index * launch.stage_bytes + launch.scales_at);
      barrier_wait(&barriers.used[stage.index], stage.phase ^ 1u);
#pragma unroll
      for (int k = u; k < Shape::kFillUnits; k += kStepUnits) {
        const int unit = fill * Shape::kFillUnits + k;
#pragma unroll
        for (int i = 0; i < kMakers; ++i) {
          const UnitEntry& entry = entries[i % kTables][unit];
          if (entry.bits != 0) makers[i].make(entry, to[k]);
        }
        if (k == Shape::kFillUnits - kStepUnits + u) barrier_arrive(&barriers.there[stage.index]);
#pragma unroll
        for (int t = 0; t < kTables; ++t) {
          const int next = entries[t][unit + kStepUnits].group;
          if (next != groups[t]) {
#pragma unroll
            for (int i = t; i < kMakers; i += kTables) makers[i].load(next);
          }
          groups[t] = next;
        }
      }
      stage.next(launch.stages);
    }
  });
}

#endif

}  // namespace bl::cuda
