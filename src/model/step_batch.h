#pragma once
#include <cstdint>
#include <vector>

#include "nn/lora.h"

namespace bl {

// One sequence of a step: rows [first_token, first_token + tokens) of the batch are its positions
// [past, past + tokens).
struct BatchSequence {
  std::int32_t first_token = 0;
  std::int32_t tokens = 0;
  std::int32_t past = 0;            // positions whose keys and values are already in the pages
  std::vector<std::int32_t> pages;  // of positions [0, past + tokens), in order
  std::int64_t reach = 0;  // the length the sequence may reach, fixed for its life: dynamic and
                           // longrope scaling choose frequencies by it
  const AdapterMix* adapters = nullptr;  // outlives the step; null: none
};

// A request for a copy of the hidden states behind some block, for the rows with logits.
struct StateRows {
  static constexpr std::int32_t kNormed = -1;  // the input of the head
  std::int32_t blocks = kNormed;               // after this many blocks; 0: the embedding
  TensorView to;                               // F32 [logit_rows, hidden], in the backend's memory
};

// Normalised hidden states (the input of the head) that outlive a step, for a draft head that
// chains.
struct CarriedStates {
  TensorView memory;                 // F32 [rows, hidden], in the backend's memory
  std::vector<std::int32_t> before;  // [sequences] row of the state before the first token
  std::vector<std::int32_t> kept;    // rows of the step whose states are stored …
  std::int32_t kept_at = 0;          // … from this row on, after `before` has been read
};

// How the rows of that memory are used: first the wanted rows of a step, and the last row of each
// sequence that has none; then a row of zeros; then the rows of a round of guesses.
struct CarriedPlaces {
  std::int64_t logit_rows = 0;  // of a step, at most
  std::int64_t sequences = 0;
  std::int64_t zero() const { return logit_rows + sequences; }
  std::int64_t drafts() const { return zero() + 1; }
  std::int64_t rows() const { return drafts() + logit_rows; }
};

// All tokens of one step, sequence after sequence, without padding.
struct StepBatch {
  std::vector<std::int32_t> ids;  // [tokens]
  // If not null: the ids in the backend's memory, which the host does not know yet; `ids` then only
  // has the right size. Each is below the number of embeddings, or −1, which counts as 0.
  const std::int32_t* chosen = nullptr;
  std::vector<std::int32_t> positions;  // [tokens]
  std::vector<std::int64_t> slots;      // [tokens]: page · kPageSlots + slot in the page
  std::vector<BatchSequence> sequences;
  std::vector<std::int32_t> logit_rows;  // rows whose logits are wanted, ascending
  std::vector<StateRows> states{};
  CarriedStates carried{};
};

}  // namespace bl
