#pragma once
// Contract of the op that chooses the tokens behind rows of logits where these lie.

#include <cstdint>

#include "ops/exec_context.h"
#include "tensor/arena.h"
#include "tensor/tensor_view.h"

namespace bl {

// What is done with one row, as it lies in the backend's memory. The stages, their order and their
// ties are those of sample/ (docs/adr/0014): penalties and biases, temperature, top-k, top-p,
// min-p, draw.
struct SampleRule {
  enum class Kind : std::int32_t {
    kNone,       // nothing: the row is the host's
    kLikeliest,  // the greatest logit, the lowest id among equals
    kDraw
  };
  std::uint64_t draw = 0;       // u · 2^64: where in the cumulative sum, over ids, the token lies
  double top_p = 1;             // in (0, 1]; 1: off
  double min_p = 0;             // in [0, 1]; 0: off
  float inverse = 1;            // 1 / temperature, above 0
  std::int32_t top_k = 0;       // 0: off
  std::int32_t first_edit = 0;  // of SampleArgs::edits …
  std::int32_t edits = 0;       // … so many, each of another token
  float repetition = 1;         // divides positive logits, multiplies others
  float presence = 0;           // is subtracted
  float frequency = 0;          // is subtracted once an occurrence
  Kind kind = Kind::kNone;
  std::int32_t log_probability = 0;  // whether it is wanted; not of rows that are edited
  std::int32_t unused = 0;
};
static_assert(sizeof(SampleRule) == 64);

// What happens to the logit of a token before anything else: penalties, if it has occurred, then a
// bias.
struct LogitEdit {
  std::int32_t id = 0;
  float count = 0;  // occurrences
  float bias = 0;   // −∞ bars the token
};

// Weights are fast_exp((logit − top) · inverse) in units of 2^-44, those of tokens further than
// kDeepestScore below the top are nothing, and sums are of whole numbers: their order does not
// matter, and every backend gives the same tokens.
//
// top-k keeps the greatest logits, top-p of these the likeliest whose sum reaches ⌈p · their sum⌉,
// min-p those of at least so much of the likeliest one's weight; equals go by id.
//
// ids[r] is −1 where the kind is kNone, where a logit is NaN or +∞ and where nothing but −∞ is
// left: what such a row is worth is the host's to say.
struct SampleArgs {
  TensorView logits;  // F32 [rows, vocab], rows may be strided; as it was when the op is done
  const SampleRule* rules = nullptr;   // [rows], in the backend's memory, as edits are
  const LogitEdit* edits = nullptr;    // [max_edits]
  std::int64_t max_edits = 0;          // of all rows, at most; 0: none has any
  std::int32_t* ids = nullptr;         // [rows]
  float* log_probabilities = nullptr;  // [rows], of the row's own softmax; written where wanted
};

struct SampleLimits {
  static constexpr std::int64_t kRows = 256;
  static constexpr std::int64_t kVocab = (std::int64_t{1} << 20) - 1;  // a sum has 64 bits
  static constexpr std::int64_t kEdits = std::int64_t{1} << 16;        // of all rows
};

// Bytes of scratch memory that rules, edits and results of so many rows take. A backend that has
// the op counts them among its own (Backend::scratch_bytes).
inline std::size_t sample_input_bytes(std::int64_t rows) {
  const std::int64_t most = rows < SampleLimits::kRows ? rows : SampleLimits::kRows;
  return arena_bytes(DType::kI64, most * 8) + arena_bytes(DType::kI32, SampleLimits::kEdits * 3) +
         arena_bytes(DType::kI32, most * 2);
}

}  // namespace bl
