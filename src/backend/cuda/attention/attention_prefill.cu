#include "backend/cuda/attention/attention_prefill.h"

#include <algorithm>

#include "backend/cuda/attention/attention_hopper.h"
#include "backend/cuda/attention/attention_launch.cuh"
#include "backend/cuda/attention/attention_prefill.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

struct PrefillRun {
  ExecContext& ctx;
  const AttentionParams& params;
  int spans = 0;
  int most_rows = 0;
};

template <CacheTypes kTypes, int kDim>
void launch_prefill(const PrefillRun& run) {
  using Config = PrefillConfig<kTypes, kDim>;
  const auto code_bytes =
      static_cast<std::size_t>(Config::code_bytes(run.params.k_row.bytes, run.params.v_row.bytes));
  const std::size_t room = cuda_device(run.ctx).facts().shared_bytes_per_cta;
  const bool has_code_tiles = Config::kTileBytes + code_bytes <= room;
  BL_CHECK(has_code_tiles || Config::kMayLackCodeTiles);
  const std::size_t bytes = Config::kTileBytes + (has_code_tiles ? code_bytes : 0);
  allow_shared_bytes(prefill_kernel<Config>, bytes);
  const dim3 grid(static_cast<unsigned>((run.most_rows + Config::kRows - 1) / Config::kRows),
                  static_cast<unsigned>(run.params.kv_heads), static_cast<unsigned>(run.spans));
  launch(shape_of(run.ctx, grid, dim3(kPrefillThreads), bytes), prefill_kernel<Config>, run.params,
         has_code_tiles);
}

template <CacheTypes kTypes>
void launch_prefill_of(const PrefillRun& run) {
  const int dim = std::max(run.params.k_row.dim, run.params.v_row.dim);
  if (dim <= 64) return launch_prefill<kTypes, 64>(run);
  if (dim <= 128) return launch_prefill<kTypes, 128>(run);
  BL_CHECK(dim <= 256);
  launch_prefill<kTypes, 256>(run);
}

}  // namespace

void attention_prefill(ExecContext& ctx, const AttentionParams& params, const DeviceSpanPlan& plan,
                       CacheTypes types, const float2* rope_table) {
  AttentionParams part = params;
  part.spans += plan.host.decode_spans;
  part.pages += static_cast<std::int64_t>(plan.host.decode_spans) * params.page_stride;
  if (can_run_hopper(ctx, part, types)) return attention_hopper(ctx, part, plan, rope_table);
  BL_CHECK(rope_table == nullptr);
  const PrefillRun run{ctx, part, plan.host.prefill_spans, plan.host.prefill_tokens * params.group};
  if (types == CacheType::kF16) return launch_prefill_of<CacheType::kF16>(run);
  if (launch_own(types, [&](auto constant) { launch_prefill_of<constant()>(run); })) return;
  launch_prefill_of<kAnyWidth>(run);
}

}  // namespace bl::cuda
