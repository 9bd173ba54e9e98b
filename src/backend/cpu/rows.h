#pragma once
#include "backend/cpu/piece_queue.h"
#include "ops/exec_context.h"
#include "tensor/tensor_view.h"

namespace bl::cpu {

// Calls body(row) for rows [0, rows) on all threads. Each thread starts with the same rows in every
// op with this many rows, so that a row that one op wrote is in the cache of the thread that reads
// it next.
template <class F>
void share_rows(ExecContext& ctx, std::int64_t rows, const F& body) {
  PieceQueue queue(rows, ctx.threads->threads());
  ctx.threads->run_any([&](int thread) {
    for (std::int64_t row = 0; (row = queue.take(thread)) >= 0;) body(row);
  });
}

// Calls body(row) for rows of about `width` elements, on all threads if there is enough work:
// waking threads costs as much as a few thousand elements.
template <class F>
void for_rows(ExecContext& ctx, std::int64_t rows, std::int64_t width, const F& body) {
  constexpr std::int64_t kWorthSharing = 8192;
  if (rows * width < kWorthSharing || ctx.threads == nullptr) {
    for (std::int64_t row = 0; row < rows; ++row) body(row);
    return;
  }
  share_rows(ctx, rows, body);
}

}  // namespace bl::cpu
