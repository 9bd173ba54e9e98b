#pragma once
#include <cstdint>
#include <span>

#include "backend/cuda/attention/attention_plan.h"
#include "ops/backend.h"

namespace bl::cuda {

// The plan of a step's spans, with the copy of its tables in device memory.
struct DeviceSpanPlan final : AttentionPlan {
  SpanPlan host;
  TensorView packed;  // SpanPlan::packed in device memory

  const SpanEntry* spans() const { return reinterpret_cast<const SpanEntry*>(ints()); }
  const std::int32_t* pages() const { return ints() + host.pages_offset(); }
  std::uint32_t* counters() const {
    return reinterpret_cast<std::uint32_t*>(ints() + host.counters_offset());
  }

 private:
  std::int32_t* ints() const { return packed.as<std::int32_t>(); }
};

// Makes the plan of one step at a time.
class AttentionTables {
 public:
  // Plans the step and uploads its tables, in one copy, to memory from ctx.scratch. The result is
  // valid until the next call.
  const AttentionPlan* plan(ExecContext& ctx, Backend& backend,
                            std::span<const SequenceSpan> sequences);

  // Bytes of scratch that plan() takes.
  static std::size_t scratch_bytes(std::int64_t sequences, std::int64_t max_pages);

 private:
  DeviceSpanPlan plan_;
};

}  // namespace bl::cuda
