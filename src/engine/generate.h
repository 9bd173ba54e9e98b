#pragma once
// The short way for scripts: texts in, texts out, all of them together on one engine.

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace bl {

struct GeneratePrompt {
  std::string text{};
  std::string negative{};                    // with sampling.cfg_scale: what to steer away from
  std::optional<SamplingParams> sampling{};  // of this prompt; else GenerateOptions::sampling
  ConstraintSpec constraint{};
};

struct GenerateOptions {
  // Prompt i has the seed of this plus i.
  SamplingParams sampling{};
  std::vector<AdapterChoice> adapters{};
  bool add_special = true;      // what the tokenizer puts around a text (BOS)
  bool parse_special = false;   // special tokens that prompts spell are such tokens
  bool skip_special = true;     // special tokens leave no text
  bool completion_only = true;  // false: texts begin with their prompts
  // A prompt that leaves no room for sampling.max_tokens (one token, where that is 0) loses its
  // beginning; false: an error.
  bool cut_left = false;
  std::stop_token stop{};  // when asked to, everything is cancelled
};

struct Generated {
  std::string text;             // of the first answer
  std::vector<Answer> answers;  // all `n` of the prompt
};

// Waits for all answers, in the order of the prompts, however many these are: where the queue is
// full they wait for a place in it. Throws what Engine::submit() throws else, and what ended an
// answer with FinishReason::kError; the rest is then cancelled. Nothing where it was asked to stop.
std::vector<Generated> generate(Engine& engine, std::span<const GeneratePrompt> prompts,
                                const GenerateOptions& options = {});

}  // namespace bl
