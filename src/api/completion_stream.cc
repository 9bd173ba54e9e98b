#include "api/completion_stream.h"

#include <utility>

#include "api/completion_chunk.h"
#include "api/finish.h"
#include "base/error.h"

namespace bl::openai {

CompletionStream::CompletionStream(AnswerHead head, const CompletionRequest& request,
                                   std::vector<std::vector<std::int32_t>> prompts,
                                   const Logprobs& logprobs)
    : request_(request),
      logprobs_(logprobs),
      frame_{std::move(head), "text_completion", request.include_usage},
      prompts_(std::move(prompts)) {
  for (const std::vector<std::int32_t>& prompt : prompts_) {
    for (std::int64_t i = 0; i < request.sampling.n; ++i) {
      choices_.emplace_back(logprobs.names(), prompt);
    }
  }
}

std::optional<Json> CompletionStream::push(std::size_t prompt, const Event& event) {
  if (event.finish == FinishReason::kError) throw Error(event.code, event.error);
  CompletionChunk chunk{
      .index = static_cast<std::int64_t>(prompt) * request_.sampling.n + event.choice,
      .text = event.text};
  if (request_.sampling.logprobs) {
    const auto tokens = choices_[static_cast<std::size_t>(chunk.index)].add(event);
    if (!tokens.empty()) chunk.logprobs = logprobs_.completion(tokens);
  }
  if (event.finish) {
    const ChoiceEnd end{*event.finish, event.stop_string, event.end_token};
    chunk.finish_reason = finish_reason(end.reason);
    chunk.stop_reason = stop_reason(end, request_.sampling.stop_tokens);
    usage_.add(event.usage, event.choice == 0);
  } else if (chunk.text.empty() && chunk.logprobs.is_null()) {
    return std::nullopt;
  }
  return chunk.json(frame_);
}

std::optional<Json> CompletionStream::usage_chunk() const {
  if (!frame_.include_usage) return std::nullopt;
  return frame_.usage_chunk(usage_);
}

}  // namespace bl::openai
