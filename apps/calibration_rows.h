#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"

namespace bl {

struct GeneratedRows {
  std::vector<std::vector<std::int32_t>> rows;  // all of the length that was asked for
  // Rows that hold conversations; the others hold texts.
  std::int64_t conversations = 0;
};

struct RowsToGenerate {
  std::int64_t rows = 0;
  std::int64_t length = 0;  // tokens of each row; at most the engine's context
  std::uint64_t seed = 0;
  // Rows that an earlier run has written, which are not written again; empty ones are missing.
  std::vector<std::vector<std::int32_t>> done = {};
  // Called when rows have been written, with all that there are; missing ones are empty.
  std::function<void(const GeneratedRows&)> on_rows = {};
};

// Has a model write rows of tokens, which show what it reads and writes when it is used, without
// any text by others. Every token is drawn from the model's own distribution (temperature 1, no
// truncation), as "LLM-QAT: Data-Free Quantization Aware Training for Large Language Models" (2023)
// found best. A text begins with a word that is drawn from the whole vocabulary, behind what the
// tokenizer puts before a text (BOS). With a chat template every second row holds conversations, in
// which the model writes the user's messages too ("Magpie: Alignment Data Synthesis from Scratch",
// 2024). An end token ends a text, not a row: behind it another text begins, which does not depend
// on the earlier ones.
//
// The rows depend on the model, the seed, the number of the row and the length alone, as far as the
// engine's results do not depend on its batch (SessionOptions::deterministic). Shows its progress.
// The engine must have been made with a session. Throws kCancelled where it is interrupted,
// kUnsupported where the vocabulary has no words, and the error that ends an answer.
GeneratedRows generate_rows(Engine& engine, const RowsToGenerate& asked);

}  // namespace bl
