#pragma once
// One launch of the decode kernel, of the ways of which each file of kernels has some.

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "backend/cuda/attention/attention_decode_kernel.cuh"
#include "backend/cuda/attention/attention_launch.cuh"
#include "base/check.h"

namespace bl::cuda {

struct DecodeRun {
  ExecContext& ctx;
  const AttentionParams& params;
  const StagedFragments* left;  // null, or what is left in place of params.out
  const DecodeLaunch& launch;
  const FreshTokens& fresh;
  const DecodeSplit& split;
  dim3 grid;
};

void launch_decode_codes(const DecodeRun& run, CacheTypes types);
void launch_decode_tile(const DecodeRun& run, CacheTypes types);
void launch_decode_any(const DecodeRun& run, int query_tiles);

template <class Room, class Params>
void launch_decode_as(const DecodeRun& run, const Params& params) {
  const RowShape& k = run.params.k_row;
  const RowShape& v = run.params.v_row;
  constexpr int kStatic = 4 << 10;  // at most
  constexpr int kPlaceBytes = std::is_same_v<Params, LeavingParams> ? Room::kPlaceBytes : 0;
  const std::int64_t most =
      cuda_device(run.ctx).facts().shared_bytes_per_cta - kStatic - kPlaceBytes;
  int warps = std::min(run.split.warps, Room::kMostWarps);
  while (warps > 1 && Room::shared_bytes(warps, k.bytes, v.bytes) > most) warps /= 2;
  const auto bytes =
      static_cast<std::size_t>(Room::shared_bytes(warps, k.bytes, v.bytes) + kPlaceBytes);
  const auto kernel = decode_kernel<Room, Params>;
  allow_shared_bytes(kernel, bytes);
  LaunchShape shape = shape_of(run.ctx, run.grid, dim3(static_cast<unsigned>(warps) * 32), bytes);
  if (run.launch.clusters) shape.cluster = run.grid.x;
  launch(shape, kernel, params, run.launch, run.fresh);
}

// Results are left by kernels for a cache of binary16 alone: decode_leaves.
template <class Room>
void launch_decode(const DecodeRun& run) {
  if constexpr (Room::kHalf) {
    if (run.left != nullptr) {
      return launch_decode_as<Room>(run, LeavingParams{run.params, *run.left});
    }
  }
  BL_CHECK(run.left == nullptr);
  launch_decode_as<Room>(run, run.params);
}

// The same in the room of the launch's case, for few query rows.
template <CacheTypes kTypes, int kDim, DecodeWay kWay>
void launch_decode_few(const DecodeRun& run) {
  DecodeCase of = DecodeCase::kAny;
  if (is_plain<kDim>(run.params, run.launch, run.fresh)) {
    of = plain_case(run.split, run.params.page_stride);
  }
  switch (of) {
    case DecodeCase::kAny:
      return launch_decode<DecodeRoom<kTypes, kDim, 1, kWay>>(run);
    case DecodeCase::kPlainAlone:
      return launch_decode<DecodeRoom<kTypes, kDim, 1, kWay, DecodeCase::kPlainAlone>>(run);
    case DecodeCase::kPlainCluster:
      return launch_decode<DecodeRoom<kTypes, kDim, 1, kWay, DecodeCase::kPlainCluster>>(run);
    case DecodeCase::kPlainParts:
      return launch_decode<DecodeRoom<kTypes, kDim, 1, kWay, DecodeCase::kPlainParts>>(run);
  }
}

}  // namespace bl::cuda
