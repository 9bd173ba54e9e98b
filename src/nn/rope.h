#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "nn/rope_table.h"
#include "nn/step_inputs.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

namespace bl {

// The rope tables of a model in the backend's memory; also says which row each token of a step
// uses.
class RopeBank {
 public:
  RopeBank() = default;
  RopeBank(Backend& backend, std::vector<RopeSpec> specs);

  struct Sequence {
    std::int32_t tokens = 0;
    std::int32_t past = 0;
    std::int64_t reach = 0;  // number of tokens that the sequence may grow to
  };
  // Returns the rows for the tokens of these sequences, in order, one entry per table. Takes memory
  // from ctx.scratch.
  std::vector<StepInputs::RopeRows> prepare(ExecContext& ctx,
                                            std::span<const Sequence> sequences) const;
  // Scratch bytes that prepare() takes for one table and `tokens` tokens of any number of
  // sequences.
  static std::size_t work_bytes(const RopeSpec& spec, std::int64_t tokens);
  // Bytes of the backend's memory that tables for `specs` take.
  static std::size_t device_bytes(const Backend& backend, std::span<const RopeSpec> specs);

 private:
  struct Table {
    RopeSpec spec;
    Tensor inv_freq;  // [rows, rotated / 2]; empty for kDynamic
    Tensor scale;     // [rows]
  };
  StepInputs::RopeRows prepare_one(ExecContext& ctx, const Table& table,
                                   std::span<const Sequence> sequences) const;
  Backend* backend_ = nullptr;
  std::vector<Table> tables_;
};

}  // namespace bl
