#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "api/answer_head.h"
#include "api/completion_request.h"
#include "api/logprobs.h"
#include "api/shown_tokens.h"
#include "api/usage_total.h"
#include "base/json.h"
#include "engine/request.h"

namespace bl::openai {

// The chunks of a streamed text completion, made from the engine's events.
class CompletionStream {
 public:
  // `request` and `logprobs` must outlive it. `prompts`: the ids of the request's prompts in order.
  CompletionStream(AnswerHead head, const CompletionRequest& request,
                   std::vector<std::vector<std::int32_t>> prompts, const Logprobs& logprobs);
  CompletionStream(CompletionStream&&) = default;

  // What an event of the `prompt`th prompt's request adds to the stream; nothing where it brings
  // neither text nor logprobs nor an end. Throws the error of a choice that ends with one.
  std::optional<Json> push(std::size_t prompt, const Event& event);
  // The chunk behind the last one of all choices, where the request asks for it.
  std::optional<Json> usage_chunk() const;

 private:
  const CompletionRequest& request_;
  const Logprobs& logprobs_;
  ChunkFrame frame_;
  std::vector<std::vector<std::int32_t>> prompts_;
  std::vector<ShownTokens> choices_;  // of the first prompt, then of the second, …
  UsageTotal usage_;
};

}  // namespace bl::openai
