#pragma once
// Forward passes for scripts: the logits of every position of several texts of different lengths.
// They are computed together and without padding; padded_logits() lays them out padded.

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "engine/model_session.h"
#include "engine/step_model.h"
#include "tensor/tensor.h"

namespace bl {

using TokenTexts = std::span<const std::vector<std::int32_t>>;

// Calls `take` with each row of logits [vocab], valid during the call, the positions of a text in
// order. A step takes as many tokens as the session can, of all texts together, and no more than
// `most_tokens`. Throws kLimit where the session's cache cannot hold all texts, kInvalidArgument
// for a wrong id, kCancelled on an interrupt.
using TakeRow =
    std::function<void(std::size_t text, std::int64_t position, std::span<const float> row)>;
void compute_logits(ModelSession& session, TokenTexts texts, const AdapterMix& adapters,
                    const TakeRow& take,
                    std::int64_t most_tokens = std::numeric_limits<std::int64_t>::max());

// Calls `take` with rows of hidden states [hidden] instead, numbered as in transformers: state b is
// the input of block b (0: the embedding), the number of blocks stands for the output of the last
// block before the norm, and StateRows::kNormed for the input of the head. `states`: the wanted
// ones, each once. Throws as compute_logits(), and kInvalidArgument for a state that does not
// exist.
using TakeState = std::function<void(std::size_t text, std::int64_t position, std::int32_t state,
                                     std::span<const float> row)>;
struct StateTexts {
  TokenTexts texts;
  std::span<const std::int32_t> states;
};
void compute_states(ModelSession& session, const StateTexts& wanted, const AdapterMix& adapters,
                    const TakeState& take);

// Logits of several texts, left-aligned: text i fills logits[i, 0 … lengths[i]), followed by zeros.
struct PaddedLogits {
  Tensor logits;  // F32 [texts, longest, vocab]
  std::vector<std::int64_t> lengths;
};
PaddedLogits padded_logits(ModelSession& session, TokenTexts texts,
                           const AdapterMix& adapters = {});

}  // namespace bl
