#pragma once
// Texts in, texts out: the short way for scripts. All texts run together on one engine.

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace bl {

struct GeneratePrompt {
  std::string text{};
  std::string negative{};                    // with sampling.cfg_scale: the negative prompt
  std::optional<SamplingParams> sampling{};  // in place of GenerateOptions::sampling
  ConstraintSpec constraint{};
};

struct GenerateOptions {
  // The seed for prompt i is sampling.seed + i.
  SamplingParams sampling{};
  std::vector<AdapterChoice> adapters{};
  bool add_special = true;      // adds the tokens that the tokenizer puts around a text (BOS)
  bool parse_special = false;   // names of special tokens in prompts become these tokens
  bool skip_special = true;     // special tokens in answers give no text
  bool completion_only = true;  // false: texts begin with their prompts
  // True: a prompt that leaves no room for sampling.max_tokens (or for one token, where that is 0)
  // loses its beginning. False: such a prompt is an error.
  bool cut_left = false;
  std::stop_token stop{};  // a request to stop cancels everything
};

struct Generated {
  std::string text;             // the first answer's
  std::vector<Answer> answers;  // all `n` of the prompt
};

// Returns all answers, in the order of the prompts, of which there may be any number: where the
// engine's queue is full, they wait for a place in it. Throws what Engine::submit() throws for
// other reasons, and the error of an answer that ends with one; the rest is then cancelled. Returns
// nothing where it was asked to stop.
std::vector<Generated> generate(Engine& engine, std::span<const GeneratePrompt> prompts,
                                const GenerateOptions& options = {});

}  // namespace bl
