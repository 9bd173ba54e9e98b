#pragma once
#include <cstdint>
#include <span>

#include "api/shown_tokens.h"
#include "api/token_names.h"
#include "base/json_fwd.h"
#include "engine/engine.h"

namespace bl::openai {

// Log-probabilities in the forms of OpenAI's API and, for prompts, of vLLM's.
//
// "token" is a token's name (token_names.h); "bytes" are the bytes that it adds to a text. Joined,
// the bytes of an answer's tokens are its text, except for what the text leaves out: special
// tokens, a stop string, a space that the decoder drops at the beginning. A token that is
// impossible has -9999, since JSON has no −∞.
class Logprobs {
 public:
  // The tokenizer must outlive it.
  explicit Logprobs(const Tokenizer& tokenizer) : names_(tokenizer) {}
  const TokenNames& names() const { return names_; }

  // "logprobs" of a choice of /v1/chat/completions: {content: [{token, logprob, bytes,
  // top_logprobs: [{token, logprob, bytes}]}], refusal: null}.
  Json chat(std::span<const ShownToken> tokens) const;
  // "logprobs" of a choice of /v1/completions: {tokens: [], token_logprobs: [], top_logprobs:
  // [{TOKEN: logprob}], text_offset: []}. Of several tokens with one name, top_logprobs has the
  // likeliest. Names of tokens that are no UTF-8 begin with "bytes:". text_offset is
  // ShownToken::offset; tokens of a stop string lie behind the end of the text.
  Json completion(std::span<const ShownToken> tokens) const;
  // These take a whole choice. `prompt`: the ids of the request's prompt.
  Json chat(const Answer& answer, std::span<const std::int32_t> prompt) const;
  Json completion(const Answer& answer, std::span<const std::int32_t> prompt) const;
  // The form of completion() for the tokens of a prompt (echo). The first has no log-probability.
  // `rows`: Answer::prompt_logprobs.
  Json echo(std::span<const std::int32_t> prompt, std::span<const TokenLogprobs> rows) const;
  // "logprobs" of a text that goes on behind `echoed`, whose text has `characters` characters.
  static Json behind_echo(Json echoed, const Json& logprobs, std::size_t characters);
  // "prompt_logprobs": [null, {ID: {logprob, rank, decoded_token}}, …], one entry for each token
  // of the prompt, with that token and the likeliest at its place. Only the latter have a rank.
  Json prompt(const Answer& answer) const;

 private:
  Json top_json(std::span<const TokenChance> best) const;
  Json token_json(const TokenChance& chance) const;

  TokenNames names_;
};

}  // namespace bl::openai
