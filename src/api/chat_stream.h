#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "api/answer_head.h"
#include "api/chat_request.h"
#include "api/chat_turn.h"
#include "api/logprobs.h"
#include "api/shown_tokens.h"
#include "api/usage_total.h"
#include "base/json.h"
#include "engine/request.h"

namespace bl::openai {

// Turns the engine's events into the chunks of a streamed chat answer.
class ChatStream {
 public:
  // `request` and `logprobs` must outlive it. `prompt`: the ids of the request's prompt.
  ChatStream(AnswerHead head, const ChatRequest& request, std::vector<std::int32_t> prompt,
             const Logprobs& logprobs);
  ChatStream(ChatStream&&) = default;

  // Returns the chunks that an event adds to the stream: the role where it is its choice's first
  // event, then its news with its logprobs, then the reason where the choice has ended. `news` is
  // what `reader`, the reader of its choice, has made of the event.
  std::vector<Json> push(const Event& event, const std::vector<AnswerEvent>& news,
                         const ChoiceReader& reader);
  // Returns a chunk of a choice without news, for a server to add what it has to say.
  Json empty_chunk(std::int32_t choice) const;
  // Returns the chunk that follows the end of all choices where the request asks for the usage.
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
