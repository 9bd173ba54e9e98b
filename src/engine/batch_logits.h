#pragma once
// Forward passes for scripts: logits of every position of several texts of different lengths,
// computed together without padding, and laid out padded where that is wanted.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/model_session.h"
#include "engine/step_model.h"
#include "tensor/tensor.h"

namespace bl {

using TokenTexts = std::span<const std::vector<std::int32_t>>;

// Gives each row of logits as it comes: [vocab], valid during the call; positions of a text in
// order. As many tokens a step as the session takes, of all texts together. The session's cache
// must hold all of them (kLimit); wrong ids are kInvalidArgument. Stops with kCancelled on an
// interrupt.
using TakeRow =
    std::function<void(std::size_t text, std::int64_t position, std::span<const float> row)>;
void compute_logits(ModelSession& session, TokenTexts texts, const AdapterMix& adapters,
                    const TakeRow& take);

// Left-aligned: text i fills logits[i, 0 … lengths[i]); behind it are zeros.
struct PaddedLogits {
  Tensor logits;  // F32 [texts, longest, vocab]
  std::vector<std::int64_t> lengths;
};
PaddedLogits padded_logits(ModelSession& session, TokenTexts texts,
                           const AdapterMix& adapters = {});

}  // namespace bl
