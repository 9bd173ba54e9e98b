#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "api/answer_head.h"
#include "api/chat_request.h"
#include "api/logprobs.h"
#include "api/shown_tokens.h"
#include "api/usage_total.h"
#include "base/json.h"
#include "engine/request.h"

namespace bl::openai {

// The chunks of a streamed chat answer, made from the engine's events.
class ChatStream {
 public:
  // `request` and `logprobs` must outlive it. `prompt`: the ids of the request's prompt.
  ChatStream(AnswerHead head, const ChatRequest& request, std::vector<std::int32_t> prompt,
             const Logprobs& logprobs);
  ChatStream(ChatStream&&) = default;

  // What an event of any choice adds to the stream: at its first event the role, what is new of
  // text and logprobs, and behind its last event why it has ended. Throws the error of a choice
  // that ends with one.
  std::vector<Json> push(const Event& event);
  // The chunk behind the last one of all choices, where the request asks for it.
  std::optional<Json> usage_chunk() const;

 private:
  struct Choice {
    ShownTokens tokens;
    bool begun = false;
  };
  const ChatRequest& request_;
  const Logprobs& logprobs_;
  ChunkFrame frame_;
  std::vector<std::int32_t> prompt_;
  std::vector<Choice> choices_;
  UsageTotal usage_;
};

}  // namespace bl::openai
