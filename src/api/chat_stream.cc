#include "api/chat_stream.h"

#include <utility>

#include "api/chat_chunk.h"
#include "api/finish.h"
#include "base/error.h"

namespace bl::openai {

ChatStream::ChatStream(AnswerHead head, const ChatRequest& request,
                       std::vector<std::int32_t> prompt, const Logprobs& logprobs)
    : request_(request),
      logprobs_(logprobs),
      frame_{std::move(head), "chat.completion.chunk", request.include_usage},
      prompt_(std::move(prompt)),
      choices_(static_cast<std::size_t>(request.sampling.n),
               Choice{ShownTokens(logprobs.names(), prompt_)}) {}

std::vector<Json> ChatStream::push(const Event& event) {
  if (event.finish == FinishReason::kError) throw Error(event.code, event.error);
  std::vector<Json> chunks;
  const auto add = [&](ChatChunk chunk) {
    chunk.index = event.choice;
    chunks.push_back(chunk.json(frame_));
  };
  Choice& choice = choices_[static_cast<std::size_t>(event.choice)];
  if (!std::exchange(choice.begun, true)) add({.has_role = true, .content = ""});
  std::vector<ShownToken> tokens;
  if (request_.sampling.logprobs) tokens = choice.tokens.add(event);
  if (!event.text.empty() || !tokens.empty()) {
    Json logprobs = tokens.empty() ? Json() : logprobs_.chat(tokens);
    add({.content = event.text, .logprobs = std::move(logprobs)});
  }
  if (!event.finish) return chunks;
  const ChoiceEnd end{*event.finish, event.stop_string, event.end_token};
  add({.finish_reason = finish_reason(end.reason),
       .stop_reason = stop_reason(end, request_.sampling.stop_tokens)});
  usage_.add(event.usage, event.choice == 0);
  return chunks;
}

std::optional<Json> ChatStream::usage_chunk() const {
  if (!frame_.include_usage) return std::nullopt;
  return frame_.usage_chunk(usage_);
}

}  // namespace bl::openai
