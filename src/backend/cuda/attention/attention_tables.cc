#include "backend/cuda/attention/attention_tables.h"

#include <algorithm>

#include "base/check.h"

namespace bl::cuda {

const AttentionPlan* AttentionTables::plan(ExecContext& ctx, Backend& backend,
                                           std::span<const SequenceSpan> sequences) {
  plan_.host = plan_spans(sequences);
  plan_.packed = {};
  if (plan_.host.packed.empty()) return &plan_;
  const Shape shape{static_cast<std::int64_t>(plan_.host.packed.size())};
  plan_.packed = ctx.scratch->take(DType::kI32, shape);
  backend.upload(plan_.packed, view_of(plan_.host.packed.data(), DType::kI32, shape));
  return &plan_;
}

std::size_t AttentionTables::scratch_bytes(std::int64_t sequences, std::int64_t max_pages) {
  return arena_bytes(DType::kI32, static_cast<std::int64_t>(packed_ints(sequences, max_pages)));
}

}  // namespace bl::cuda
