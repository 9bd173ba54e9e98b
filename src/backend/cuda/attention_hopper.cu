#include "backend/cuda/attention_hopper.h"

#include "backend/cuda/attention_hopper.cuh"
#include "backend/cuda/attention_launch.cuh"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/tensor_map.h"

namespace bl::cuda {
namespace {

template <int kDim>
void launch_hopper(ExecContext& ctx, const AttentionParams& p, const DeviceSpanPlan& plan) {
  const std::int64_t rows = p.cache_pages * p.kv_heads * kPageSlots;
  const CUtensorMap keys = half_rows_map(p.k, kDim, rows, kHopperKeys);
  const CUtensorMap values = half_rows_map(p.v, kDim, rows, kHopperKeys);
  const int tiles = (plan.host.prefill_tokens * p.group + kHopperRows - 1) / kHopperRows;
  const dim3 grid(static_cast<unsigned>(p.kv_heads), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(plan.host.prefill_spans));
  constexpr std::size_t kBytes = HopperRoom<kDim>::kBytes;
  allow_shared_bytes(hopper_prefill_kernel<kDim>, kBytes);
  launch(shape_of(ctx, grid, dim3(kHopperThreads), kBytes), hopper_prefill_kernel<kDim>, p, keys,
         values);
}

bool fits(const AttentionParams& p) {
  const int dim = p.k_row.dim;
  const std::int64_t rows = p.cache_pages * p.kv_heads * kPageSlots;
  return (dim == 64 || dim == 128) && p.v_row.dim == dim && rows > 0 && rows < INT32_MAX;
}

}  // namespace

bool attention_hopper(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                      CacheType type) {
  constexpr int kHopper = 90;
  if (cuda_ops_of(ctx).backend->facts().compute_capability != kHopper) return false;
  if (type != CacheType::kF16 || !fits(params)) return false;
  if (params.k_row.dim == 64) {
    launch_hopper<64>(ctx, params, plan);
  } else {
    launch_hopper<128>(ctx, params, plan);
  }
  return true;
}

}  // namespace bl::cuda
