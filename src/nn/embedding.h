#pragma once
#include <cstdint>

#include "format/tensor_source.h"
#include "nn/norm.h"
#include "ops/exec_context.h"
#include "ops/op_table.h"

namespace bl {

// Token embedding, with learned positions and a norm if the model has them.
class Embedding {
 public:
  Embedding() = default;
  // Tables are [rows, hidden] in F32, F16 or BF16, in memory that the backend can read.
  Embedding(HostArray table, float multiplier)
      : table_(std::move(table)), multiplier_(multiplier) {}

  void set_positions(HostArray table) { positions_ = std::move(table); }
  void set_norm(Norm norm) { norm_ = std::move(norm); }

  const TensorView& table() const { return table_.view; }
  // Number of learned positions, which limits the context length; 0 if there are none.
  std::int64_t learned_positions() const { return positions_.view.rows(); }
  std::size_t bytes() const;  // of the tables

  // out [tokens, hidden] = multiplier · table[id], without adapters, positions or norm.
  void rows(ExecContext& ctx, const std::int32_t* ids, float multiplier,
            const TensorView& out) const;
  // out [tokens, hidden] = norm(multiplier · (table[id] + adapters) + positions[position]), where
  // positions and norm are optional.
  void forward(ExecContext& ctx, const std::int32_t* ids, const std::int32_t* positions,
               const TensorView& out) const;

 private:
  HostArray table_;
  HostArray positions_;
  Norm norm_;
  float multiplier_ = 1.0f;
};

}  // namespace bl
