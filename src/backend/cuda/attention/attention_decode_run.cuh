#pragma once
// Launches the decode kernel. Its instantiations are spread over the attention_decode*.cu files.

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
  const StagedFragments* staged;  // null, or where results go instead of params.out
  const DecodeLaunch& launch;
  const FreshTokens& fresh;
  const DecodeSplit& split;
  dim3 grid;
};

void launch_decode_codes(const DecodeRun& run, CacheTypes types);
void launch_decode_tile(const DecodeRun& run, CacheTypes types);
void launch_decode_any(const DecodeRun& run, int query_tiles);

template <class Config, class Params>
void launch_decode_as(const DecodeRun& run, const Params& params) {
  const RowShape& k = run.params.k_row;
  const RowShape& v = run.params.v_row;
  constexpr int kStatic = 4 << 10;  // upper bound of the kernel's static shared memory, in bytes
  constexpr int kFragmentOffsetBytes =
      std::is_same_v<Params, StagedParams> ? Config::kFragmentOffsetBytes : 0;
  const std::int64_t most =
      cuda_device(run.ctx).facts().shared_bytes_per_cta - kStatic - kFragmentOffsetBytes;
  int warps = std::min(run.split.warps, Config::kMostWarps);
  while (warps > 1 && Config::shared_bytes(warps, k.bytes, v.bytes) > most) warps /= 2;
  const auto bytes = static_cast<std::size_t>(Config::shared_bytes(warps, k.bytes, v.bytes) +
                                              kFragmentOffsetBytes);
  const auto kernel = decode_kernel<Config, Params>;
  allow_shared_bytes(kernel, bytes);
  LaunchShape shape = shape_of(run.ctx, run.grid, dim3(static_cast<unsigned>(warps) * 32), bytes);
  if (run.launch.clusters) shape.cluster = run.grid.x;
  launch(shape, kernel, params, run.launch, run.fresh);
}

// Launches a kernel with or without staging. Only kernels for binary16 caches stage results
// (decode_can_stage).
template <class Config>
void launch_decode(const DecodeRun& run) {
  if constexpr (Config::kHalf) {
    if (run.staged != nullptr) {
      return launch_decode_as<Config>(run, StagedParams{run.params, *run.staged});
    }
  }
  BL_CHECK(run.staged == nullptr);
  launch_decode_as<Config>(run, run.params);
}

// Launches the kernel for at most kFewRows query rows, specialized for the launch's
// DecodeSpecialization.
template <CacheTypes kTypes, int kDim, FragmentSource kFragmentSource>
void launch_decode_few(const DecodeRun& run) {
  DecodeSpecialization of = DecodeSpecialization::kAny;
  if (is_plain<kDim>(run.params, run.launch, run.fresh)) {
    of = plain_case(run.split, run.params.page_stride);
  }
  switch (of) {
    case DecodeSpecialization::kAny:
      return launch_decode<DecodeConfig<kTypes, kDim, 1, kFragmentSource>>(run);
    case DecodeSpecialization::kPlainOneSplit:
      return launch_decode<
          DecodeConfig<kTypes, kDim, 1, kFragmentSource, DecodeSpecialization::kPlainOneSplit>>(
          run);
    case DecodeSpecialization::kPlainCluster:
      return launch_decode<
          DecodeConfig<kTypes, kDim, 1, kFragmentSource, DecodeSpecialization::kPlainCluster>>(run);
    case DecodeSpecialization::kPlainPartials:
      return launch_decode<
          DecodeConfig<kTypes, kDim, 1, kFragmentSource, DecodeSpecialization::kPlainPartials>>(
          run);
  }
}

}  // namespace bl::cuda
