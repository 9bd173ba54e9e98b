#pragma once
#include <atomic>

#include "backend/cpu/attention_kernels.h"
#include "ops/exec_context.h"

namespace bl::cpu {

// Computes the sizes of a row's encoding.
inline RowFormat row_format(const KvRow& row) {
  RowFormat format{.code = row.code,
                   .bits = row.bits,
                   .dim = row.dim,
                   .code_bytes = row.code_bytes(),
                   .bytes = row.bytes(),
                   .atom = 1};
  if (row.code == KvRow::Code::kF32) format.atom = 4;
  if (row.code == KvRow::Code::kF16) format.atom = 2;
  return format;
}

struct Items {
  std::int64_t count = 0;
  std::int64_t grain = 1;
  bool shared = true;  // whether to use the threads; otherwise all run on the caller
};

// Calls body(thread, item) for all items, last first, because later items are larger if sizes
// differ.
template <class F>
void for_items(ExecContext& ctx, const Items& items, const F& body) {
  if (!items.shared || ctx.threads == nullptr || items.count <= items.grain) {
    for (std::int64_t i = items.count; i > 0; --i) body(0, i - 1);
    return;
  }
  std::atomic<std::int64_t> left{items.count};
  ctx.threads->run([&](int thread) {
    while (true) {
      const std::int64_t end = left.fetch_sub(items.grain, std::memory_order_relaxed);
      if (end <= 0) return;
      const std::int64_t begin = end > items.grain ? end - items.grain : 0;
      for (std::int64_t i = end; i > begin; --i) body(thread, i - 1);
    }
  });
}

}  // namespace bl::cpu
