#pragma once
// Ops of this backend beside those of the table: several in one launch, where a step of few tokens
// would spend its time between launches.

#include <cstdint>

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// add.x += multiplier · add.y, then norm of that: norm.x is add.x, in one segment a row.
void add_norm(ExecContext& ctx, const AddArgs& add, const NormArgs& norm);

// out[r]: the index of the greatest value of row r of `logits` (F32 [rows, vocab]), the lowest
// among equals; −1 where the row holds NaN or +∞, or nothing but −∞: what such a row is worth is
// the host's to say. Takes argmax_scratch_bytes of scratch.
void argmax(ExecContext& ctx, const TensorView& logits, std::int32_t* out);
std::size_t argmax_scratch_bytes(std::int64_t rows);

}  // namespace bl::cuda
