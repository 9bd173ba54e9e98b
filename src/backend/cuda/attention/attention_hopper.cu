// Launches the attention kernels for compute capability 9.0, which are compiled for sm_90a.

#include "backend/cuda/attention/attention_hopper.h"

#include "backend/cuda/attention/attention_hopper_kernel.cuh"
#include "backend/cuda/attention/attention_hopper_split.cuh"
#include "backend/cuda/attention/attention_launch.cuh"
#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/tensor_map.h"

namespace bl::cuda {
namespace {

std::int64_t rows_of_cache(const AttentionParams& p) {
  return p.cache_pages * p.kv_heads * kPageSlots;
}

struct KeyMaps {
  CUtensorMap keys;
  CUtensorMap values;
};

KeyMaps maps_of(const AttentionParams& p) {
  return {half_rows_map(p.k, p.k_row.dim, rows_of_cache(p), kHopperKeys),
          half_rows_map(p.v, p.v_row.dim, rows_of_cache(p), kHopperKeys)};
}

template <int kDim>
void launch_prefill(ExecContext& ctx, const AttentionParams& p, const DeviceSpanPlan& plan,
                    const float2* rope_table) {
  using Config = HopperPrefillConfig<kDim>;
  const KeyMaps maps = maps_of(p);
  const int tiles = (plan.host.prefill_tokens * p.group + Config::kRows - 1) / Config::kRows;
  const dim3 grid(static_cast<unsigned>(p.kv_heads), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(plan.host.prefill_spans));
  constexpr std::size_t kBytes = Config::kBytes;
  allow_shared_bytes(hopper_prefill_kernel<Config>, kBytes);
  launch(shape_of(ctx, grid, dim3(Config::kThreads), kBytes), hopper_prefill_kernel<Config>, p,
         maps.keys, maps.values, rope_table);
}

template <int kDim>
void launch_split(ExecContext& ctx, const AttentionParams& p, const HopperSplit& split, int spans) {
  using Config = HopperSplitConfig<kDim>;
  static_assert(Config::kRows == kHopperSplitRows);
  const KeyMaps maps = maps_of(p);
  const dim3 grid(static_cast<unsigned>(split.kv_splits),
                  static_cast<unsigned>(p.kv_heads * split.row_tiles),
                  static_cast<unsigned>(spans));
  constexpr std::size_t kBytes = Config::kBytes;
  allow_shared_bytes(hopper_split_kernel<Config>, kBytes);
  LaunchShape shape = shape_of(ctx, grid, dim3(Config::kThreads), kBytes);
  shape.cluster = grid.x;
  launch(shape, hopper_split_kernel<Config>, p, maps.keys, maps.values);
}

}  // namespace

bool can_run_hopper(const ExecContext& ctx, const AttentionParams& p, CacheTypes types) {
  constexpr int kHopper = 90;
  const int dim = p.k_row.dim;
  return cuda_device(ctx).facts().compute_capability == kHopper && types == CacheType::kF16 &&
         (dim == 64 || dim == 128) && p.v_row.dim == dim && rows_of_cache(p) > 0 &&
         rows_of_cache(p) < INT32_MAX && is_aligned(p.q, 8) && p.q_stride % 2 == 0;
}

void attention_hopper(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                      const float2* rope_table) {
  BL_CHECK(params.staged_out == nullptr || params.out_stride % 8 == 0);
  if (params.k_row.dim == 64) {
    launch_prefill<64>(ctx, params, plan, rope_table);
  } else {
    launch_prefill<128>(ctx, params, plan, rope_table);
  }
}

void attention_hopper_split(ExecContext& ctx, const AttentionParams& params,
                            const HopperSplit& split, int spans) {
  BL_CHECK(params.staged_out == nullptr);
  if (params.k_row.dim == 64) {
    launch_split<64>(ctx, params, split, spans);
  } else {
    launch_split<128>(ctx, params, split, spans);
  }
}

}  // namespace bl::cuda
