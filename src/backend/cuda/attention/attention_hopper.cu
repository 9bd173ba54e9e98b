#include "backend/cuda/attention/attention_hopper.h"

#include "backend/cuda/attention/attention_hopper_kernel.cuh"
#include "backend/cuda/attention/attention_hopper_pieces.cuh"
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
                    const float2* turns) {
  using Room = HopperPrefillRoom<kDim>;
  const KeyMaps maps = maps_of(p);
  const int tiles = (plan.host.prefill_tokens * p.group + Room::kRows - 1) / Room::kRows;
  const dim3 grid(static_cast<unsigned>(p.kv_heads), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(plan.host.prefill_spans));
  constexpr std::size_t kBytes = Room::kBytes;
  allow_shared_bytes(hopper_prefill_kernel<Room>, kBytes);
  launch(shape_of(ctx, grid, dim3(Room::kThreads), kBytes), hopper_prefill_kernel<Room>, p,
         maps.keys, maps.values, turns);
}

template <int kDim>
void launch_pieces(ExecContext& ctx, const AttentionParams& p, const HopperSplit& split,
                   int spans) {
  using Room = HopperPieceRoom<kDim>;
  static_assert(Room::kRows == kHopperPieceRows);
  const KeyMaps maps = maps_of(p);
  const dim3 grid(static_cast<unsigned>(split.pieces),
                  static_cast<unsigned>(p.kv_heads * split.row_tiles),
                  static_cast<unsigned>(spans));
  constexpr std::size_t kBytes = Room::kBytes;
  allow_shared_bytes(hopper_pieces_kernel<Room>, kBytes);
  LaunchShape shape = shape_of(ctx, grid, dim3(Room::kThreads), kBytes);
  shape.cluster = grid.x;
  launch(shape, hopper_pieces_kernel<Room>, p, maps.keys, maps.values);
}

}  // namespace

bool takes_hopper(const ExecContext& ctx, const AttentionParams& p, CacheTypes types) {
  constexpr int kHopper = 90;
  const int dim = p.k_row.dim;
  return cuda_device(ctx).facts().compute_capability == kHopper && types == CacheType::kF16 &&
         (dim == 64 || dim == 128) && p.v_row.dim == dim && rows_of_cache(p) > 0 &&
         rows_of_cache(p) < INT32_MAX && is_aligned(p.q, 8) && p.q_stride % 2 == 0;
}

void attention_hopper(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                      const float2* turns) {
  BL_CHECK(params.staged_out == nullptr || params.out_stride % 8 == 0);
  if (params.k_row.dim == 64) {
    launch_prefill<64>(ctx, params, plan, turns);
  } else {
    launch_prefill<128>(ctx, params, plan, turns);
  }
}

void attention_hopper_pieces(ExecContext& ctx, const AttentionParams& params,
                             const HopperSplit& split, int spans) {
  BL_CHECK(params.staged_out == nullptr);
  if (params.k_row.dim == 64) {
    launch_pieces<64>(ctx, params, split, spans);
  } else {
    launch_pieces<128>(ctx, params, split, spans);
  }
}

}  // namespace bl::cuda
