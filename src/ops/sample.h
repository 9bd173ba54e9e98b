#pragma once
// Contract of the op that chooses tokens from rows of logits in the backend's memory.

#include <cstdint>

#include "ops/exec_context.h"
#include "tensor/arena.h"
#include "tensor/tensor_view.h"

namespace bl {

// How to choose the token of one row; the struct lies in the backend's memory. The stages, their
// order and their ties are those of sample/ (docs/adr/0014): penalties and biases, temperature,
// top-k, top-p, min-p, draw.
struct SampleRule {
  enum class Kind : std::int32_t {
    kNone,       // no choice: the host handles this row
    kLikeliest,  // the largest logit, the lowest id among equals
    kDraw
  };
  // u · 2^64, u being the position of the draw in the cumulative sum over ids.
  std::uint64_t draw = 0;
  double top_p = 1;             // in (0, 1]; 1: off
  double min_p = 0;             // in [0, 1]; 0: off
  float inverse = 1;            // 1 / temperature, above 0
  std::int32_t top_k = 0;       // 0: off
  std::int32_t first_edit = 0;  // the row's edits are SampleArgs::edits[first_edit …
  std::int32_t edits = 0;       // … first_edit + edits), each for a different token
  float repetition = 1;         // divides positive logits, multiplies others
  float presence = 0;           // subtracted once
  float frequency = 0;          // subtracted for each occurrence
  Kind kind = Kind::kNone;
  std::int32_t log_probability = 0;  // nonzero: report it; not for rows with edits
  std::int32_t unused = 0;
};
static_assert(sizeof(SampleRule) == 64);

// A change to one token's logit before all other stages: penalties if the token has occurred, then
// a bias.
struct LogitEdit {
  std::int32_t id = 0;
  // Number of occurrences; negative: the token occurred, but only the repetition penalty applies.
  float count = 0;
  float bias = 0;  // −∞ bars the token
};

// Weights are fast_exp((logit − top) · inverse) in whole units of 2^-44. Tokens more than
// kDeepestScore below the top have no weight. Since sums are of integers, their order does not
// matter, and every backend chooses the same tokens.
//
// top-k keeps the largest logits. Of these, top-p keeps the likeliest whose sum reaches ⌈p · their
// sum⌉, and min-p keeps those with at least min_p times the weight of the likeliest. Ties go to the
// lower id.
//
// ids[r] is −1 if the kind is kNone, if a logit is NaN or +∞, or if every logit is −∞; the host
// then handles the row.
struct SampleArgs {
  TensorView logits;                  // F32 [rows, vocab], rows may be strided; unchanged on return
  const SampleRule* rules = nullptr;  // [rows], in the backend's memory, like edits
  const LogitEdit* edits = nullptr;   // [max_edits]
  std::int64_t max_edits = 0;         // upper bound over all rows together; 0: no row has any
  std::int32_t* ids = nullptr;        // [rows]
  // [rows], under the row's own softmax; written where requested.
  float* log_probabilities = nullptr;
};

struct SampleLimits {
  static constexpr std::int64_t kRows = 256;
  static constexpr std::int64_t kVocab = (std::int64_t{1} << 20) - 1;  // so that a sum fits 64 bits
  static constexpr std::int64_t kEdits = std::int64_t{1} << 16;        // of all rows together
};

// Scratch bytes that the rules, edits and results of `rows` rows take. Backends with this op
// include them in Backend::scratch_bytes.
inline std::size_t sample_input_bytes(std::int64_t rows) {
  const std::int64_t most = rows < SampleLimits::kRows ? rows : SampleLimits::kRows;
  return arena_bytes(DType::kI64, most * 8) + arena_bytes(DType::kI32, SampleLimits::kEdits * 3) +
         arena_bytes(DType::kI32, most * 2);
}

}  // namespace bl
