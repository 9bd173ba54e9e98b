#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kv_rows.h"
#include "ops/attention.h"

namespace bl::cpu {

// Writes keys and values to their slots of the cache, one head at a time.
class KvWriter {
 public:
  KvWriter(const ExecContext& ctx, const KvWriteArgs& args);

  // Floats of scratch that write() needs for heads of `dim` elements.
  static std::int64_t room_floats(std::int64_t dim) { return 2 * dim + 32; }

  // Writes kv head `head` of token `t`. `room` has room_floats() for the larger of k_dim and v_dim.
  void write(std::int64_t t, std::int64_t head, float* room) const;

 private:
  const AttentionKernels& kernels_;
  const KvWriteArgs& args_;
  RowFormat k_;
  RowFormat v_;
};

}  // namespace bl::cpu
