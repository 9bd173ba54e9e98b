#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "engine/engine.h"
#include "text/token_bytes.h"

namespace bl {

// Log-probabilities in the forms of OpenAI's API and, for prompts, of vLLM's.
//
// A token is the bytes that it adds to a text within which it stands; a special one, its name.
// "bytes" are these. "token" is a text in JSON, so bytes that are no UTF-8 (a piece of a character)
// stand there as \xe2, as in OpenAI's answers: in the older form of completions behind "bytes:".
// The bytes of an answer's tokens, one after another, are its text where nothing was left out of
// that (special tokens, a stop string, a space at the beginning of what stands by itself). -9999
// stands for what cannot be, since JSON has no −∞.
//
// A token that stands for the end of the prompt (token healing) is there if it says more than that.
class LogprobsJson {
 public:
  // The tokenizer must outlive it.
  explicit LogprobsJson(const Tokenizer& tokenizer) : tokenizer_(tokenizer), bytes_(tokenizer) {}

  // "logprobs" of a choice of /v1/chat/completions: {content: [{token, logprob, bytes,
  // top_logprobs: [{token, logprob, bytes}]}], refusal: null}. `prompt`: of the request.
  Json chat(const Answer& answer, std::span<const std::int32_t> prompt) const;
  // … of /v1/completions: {tokens: [], token_logprobs: [], top_logprobs: [{TOKEN: logprob}],
  // text_offset: []}. Of tokens with the same text, top_logprobs has the likeliest. text_offset:
  // the character of the answer's text at which the token begins, or of which it goes on with the
  // bytes; tokens of a stop string lie behind the end of the text.
  Json completion(const Answer& answer, std::span<const std::int32_t> prompt) const;
  // "prompt_logprobs": [null, {ID: {logprob, rank, decoded_token}}, …], one a token of
  // the prompt: the token and the likeliest at its place. Only of the latter the rank is known.
  Json prompt(const Answer& answer) const;

 private:
  // A token that an answer shows, and the character of its text at which it begins.
  struct Shown {
    const TokenLogprobs* logprobs;
    std::size_t offset;
  };
  std::vector<Shown> shown(const Answer& answer, std::span<const std::int32_t> prompt) const;
  std::string bytes_of(std::int32_t id) const;
  std::string text_of(std::int32_t id, const char* prefix) const;
  Json token_json(const TokenChance& chance) const;

  const Tokenizer& tokenizer_;
  TokenBytes bytes_;
};

}  // namespace bl
