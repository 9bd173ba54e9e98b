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
      frame_{std::move(head), "text_completion", request.include_usage} {
  prompts_.reserve(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    prompts_.push_back({std::move(prompts[i]), EchoedPrompt::of(request, i, logprobs), {}});
    for (std::int64_t choice = 0; choice < request.sampling.n; ++choice) {
      choices_.emplace_back(logprobs.names(), prompts_.back().ids);
    }
  }
  begun_.assign(choices_.size(), false);
}

void CompletionStream::add_echo(Prompt& prompt, const Event& event, CompletionChunk& chunk) {
  if (request_.sampling.logprobs && prompt.logprobs.is_null()) {
    prompt.logprobs = logprobs_.echo(prompt.ids, event.prompt_logprobs);
  }
  std::vector<bool>::reference begun = begun_[static_cast<std::size_t>(chunk.index)];
  if (!begun) {
    chunk.text.insert(0, prompt.echo.text);
    if (request_.sampling.logprobs) {
      chunk.logprobs =
          Logprobs::behind_echo(prompt.logprobs, chunk.logprobs, prompt.echo.characters);
    }
  } else if (!chunk.logprobs.is_null()) {
    const Json none{{"text_offset", Json::array()}};
    chunk.logprobs = Logprobs::behind_echo(none, chunk.logprobs, prompt.echo.characters);
  }
  begun = true;
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
  // The prompt is said once it is computed, since its log-probabilities come with that.
  const auto size = static_cast<std::int64_t>(prompts_[prompt].ids.size());
  const bool computed = event.prompt_done >= size || !event.ids.empty() || !event.healed.empty() ||
                        event.finish.has_value();
  if (request_.echo && computed) add_echo(prompts_[prompt], event, chunk);
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
