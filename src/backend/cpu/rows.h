#pragma once
#include <algorithm>

#include "ops/exec_context.h"
#include "tensor/tensor_view.h"

namespace bl::cpu {

// body(row) for rows [0, rows) of about `width` elements each, on all threads where there is enough
// to do: waking them costs as much as a few thousand elements.
template <class F>
void for_rows(ExecContext& ctx, std::int64_t rows, std::int64_t width, const F& body) {
  constexpr std::int64_t kWorthSharing = 8192;
  if (rows * width < kWorthSharing || ctx.threads == nullptr) {
    for (std::int64_t row = 0; row < rows; ++row) body(row);
    return;
  }
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(width, 1));
  ctx.threads->parallel_for(rows, grain, [&](long begin, long end) {
    for (long row = begin; row < end; ++row) body(row);
  });
}

}  // namespace bl::cpu
