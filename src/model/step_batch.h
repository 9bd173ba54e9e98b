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
  std::int32_t past = 0;            // positions whose keys and values are in the pages already
  std::vector<std::int32_t> pages;  // of positions [0, past + tokens), in order
  std::int64_t reach = 0;  // length the sequence may reach, fixed for its life: dynamic and
                           // longrope choose their frequencies by it
  const AdapterMix* adapters = nullptr;  // outlives the step; null: none
};

// What is wanted of the stream of hidden states, of the rows of logits.
struct StateRows {
  static constexpr std::int32_t kNormed = -1;  // what the head reads
  std::int32_t blocks = kNormed;               // behind so many of them; 0: the embedding
  TensorView to;                               // F32 [logit_rows, hidden], in the backend's memory
};

// Normed hidden states (what the head reads) that outlive a step, for a draft head that chains.
struct CarriedStates {
  TensorView memory;                 // F32 [rows, hidden], in the backend's memory
  std::vector<std::int32_t> before;  // [sequences] its row: the state before the first token
  std::vector<std::int32_t> kept;    // rows of the step, whose states come to its rows …
  std::int32_t kept_at = 0;          // … from here on, when `before` has been read
};

// The rows of that memory: of a step's wanted rows, or the last one of a sequence without any; one
// of zeros; and of a round of guesses.
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
  // Where the ids are, in the backend's memory, when nobody here knows them: `ids` are then only as
  // many. Each is below the number of embeddings, or −1, which counts as 0.
  const std::int32_t* chosen = nullptr;
  std::vector<std::int32_t> positions;  // [tokens]
  std::vector<std::int64_t> slots;      // [tokens]: page · kPageSlots + slot in the page
  std::vector<BatchSequence> sequences;
  std::vector<std::int32_t> logit_rows;  // rows of which logits are wanted, ascending
  std::vector<StateRows> states{};
  CarriedStates carried{};
};

}  // namespace bl
