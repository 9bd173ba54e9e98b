#include "backend/cuda/attention/attention_hopper.h"

#include "backend/cuda/attention/attention_hopper.cuh"
#include "backend/cuda/attention/attention_launch.cuh"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/tensor_map.h"

namespace bl::cuda {
namespace {

std::int64_t rows_of_cache(const AttentionParams& p) {
  return p.cache_pages * p.kv_heads * kPageSlots;
}

template <int kDim>
void launch_hopper(ExecContext& ctx, const AttentionParams& p, const DeviceSpanPlan& plan,
                   const float2* turns) {
  const CUtensorMap keys = half_rows_map(p.k, kDim, rows_of_cache(p), kHopperKeys);
  const CUtensorMap values = half_rows_map(p.v, kDim, rows_of_cache(p), kHopperKeys);
  const int tiles = (plan.host.prefill_tokens * p.group + kHopperRows - 1) / kHopperRows;
  const dim3 grid(static_cast<unsigned>(p.kv_heads), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(plan.host.prefill_spans));
  constexpr std::size_t kBytes = HopperRoom<kDim>::kBytes;
  allow_shared_bytes(hopper_prefill_kernel<kDim>, kBytes);
  launch(shape_of(ctx, grid, dim3(kHopperThreads), kBytes), hopper_prefill_kernel<kDim>, p, keys,
         values, turns);
}

}  // namespace

bool takes_hopper(const ExecContext& ctx, const AttentionParams& p, CacheType type) {
  constexpr int kHopper = 90;
  const int dim = p.k_row.dim;
  return cuda_ops_of(ctx).backend->facts().compute_capability == kHopper &&
         type == CacheType::kF16 && (dim == 64 || dim == 128) && p.v_row.dim == dim &&
         rows_of_cache(p) > 0 && rows_of_cache(p) < INT32_MAX;
}

void attention_hopper(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                      const float2* turns) {
  if (params.k_row.dim == 64) {
    launch_hopper<64>(ctx, params, plan, turns);
  } else {
    launch_hopper<128>(ctx, params, plan, turns);
  }
}

}  // namespace bl::cuda
