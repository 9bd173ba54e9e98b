#pragma once
#include <cstdint>

#include "format/tensor_source.h"
#include "nn/norm.h"
#include "ops/exec_context.h"
#include "ops/op_table.h"

namespace bl {

// Token embedding, with learned positions and a norm where a model has them.
class Embedding {
 public:
  Embedding() = default;
  // Tables are [rows, hidden] F32, F16 or BF16 in memory that the backend reads.
  Embedding(HostArray table, float multiplier)
      : table_(std::move(table)), multiplier_(multiplier) {}

  void set_positions(HostArray table) { positions_ = std::move(table); }
  void set_norm(Norm norm) { norm_ = std::move(norm); }

  const TensorView& table() const { return table_.view; }
  // Rows of learned positions: a bound of the context; 0 without.
  std::int64_t learned_positions() const { return positions_.view.rows(); }
  std::size_t bytes() const;

  // out [tokens, hidden] = multiplier · table[id], with nothing of what a model does to it else.
  void rows(ExecContext& ctx, const std::int32_t* ids, float multiplier,
            const TensorView& out) const;
  // out [tokens, hidden] = multiplier · (table[id] + what adapters add) (+ positions[position]).
  void forward(ExecContext& ctx, const std::int32_t* ids, const std::int32_t* positions,
               const TensorView& out) const;

 private:
  HostArray table_;
  HostArray positions_;
  Norm norm_;
  float multiplier_ = 1.0f;
};

}  // namespace bl
