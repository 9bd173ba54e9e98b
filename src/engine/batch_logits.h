#pragma once
// Forward passes for scripts: logits of every position of several texts of different lengths,
// computed together without padding, and laid out padded where that is wanted.

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

// Gives each row of logits as it comes: [vocab], valid during the call; positions of a text in
// order. As many tokens a step as the session takes, of all texts together, and no more than
// `most_tokens`. The session's cache must hold all of them (kLimit); wrong ids are
// kInvalidArgument. Stops with kCancelled on an interrupt.
using TakeRow =
    std::function<void(std::size_t text, std::int64_t position, std::span<const float> row)>;
void compute_logits(ModelSession& session, TokenTexts texts, const AdapterMix& adapters,
                    const TakeRow& take,
                    std::int64_t most_tokens = std::numeric_limits<std::int64_t>::max());

// The same of hidden states, as transformers numbers them: of block b what it reads (b = 0: the
// embedding), and of kNormed what the head reads; `states` says which, each once. What the last
// block leaves before the norm is the number of blocks. Throws kInvalidArgument for others.
using TakeState = std::function<void(std::size_t text, std::int64_t position, std::int32_t state,
                                     std::span<const float> row)>;
struct StateTexts {
  TokenTexts texts;
  std::span<const std::int32_t> states;
};
void compute_states(ModelSession& session, const StateTexts& wanted, const AdapterMix& adapters,
                    const TakeState& take);

// Left-aligned: text i fills logits[i, 0 … lengths[i]); behind it are zeros.
struct PaddedLogits {
  Tensor logits;  // F32 [texts, longest, vocab]
  std::vector<std::int64_t> lengths;
};
PaddedLogits padded_logits(ModelSession& session, TokenTexts texts,
                           const AdapterMix& adapters = {});

}  // namespace bl
