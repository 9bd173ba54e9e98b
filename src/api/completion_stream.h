#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "api/answer_head.h"
#include "api/completion_chunk.h"
#include "api/completion_request.h"
#include "api/echoed_prompt.h"
#include "api/logprobs.h"
#include "api/shown_tokens.h"
#include "api/usage_total.h"
#include "base/json.h"
#include "engine/request.h"

namespace bl::openai {

// Turns the engine's events into the chunks of a streamed text completion.
class CompletionStream {
 public:
  // `request` and `logprobs` must outlive it. `prompts`: the ids of the request's prompts in order.
  CompletionStream(AnswerHead head, const CompletionRequest& request,
                   std::vector<std::vector<std::int32_t>> prompts, const Logprobs& logprobs);
  CompletionStream(CompletionStream&&) = default;

  // Returns the chunk for an event of the request of prompt number `prompt`; nothing where the
  // event brings neither text nor logprobs nor an end. Throws the error of a choice that has ended
  // with one.
  // With echo, the first chunk of a choice begins with the prompt.
  std::optional<Json> push(std::size_t prompt, const Event& event);
  // Returns the chunk that follows the end of all choices where the request asks for the usage.
  std::optional<Json> usage_chunk() const;

 private:
  struct Prompt {
    std::vector<std::int32_t> ids;
    EchoedPrompt echo;
    Json logprobs;  // of the prompt, once they are known
  };
  void add_echo(Prompt& prompt, const Event& event, CompletionChunk& chunk);

  const CompletionRequest& request_;
  const Logprobs& logprobs_;
  ChunkFrame frame_;
  std::vector<Prompt> prompts_;
  std::vector<ShownTokens> choices_;  // those of the first prompt, then of the second, …
  std::vector<bool> begun_;           // whether a choice has had a chunk
  UsageTotal usage_;
};

}  // namespace bl::openai
