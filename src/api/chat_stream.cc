#include "api/chat_stream.h"

#include <utility>

#include "api/chat_chunk.h"
#include "api/finish.h"

namespace bl::openai {
namespace {

// The deltas for the news of one event; what goes on in one place becomes one delta.
std::vector<ChatChunk> deltas_of(const std::vector<AnswerEvent>& news) {
  std::vector<ChatChunk> deltas;
  const AnswerEvent* last = nullptr;
  for (const AnswerEvent& one : news) {
    const bool goes_on = last != nullptr && last->kind == one.kind && last->call == one.call;
    switch (one.kind) {
      case AnswerEvent::Kind::kContent:
        if (!goes_on) deltas.push_back({.content = ""});
        *deltas.back().content += one.text;
        break;
      case AnswerEvent::Kind::kReasoning:
        if (!goes_on) deltas.push_back({.reasoning = ""});
        *deltas.back().reasoning += one.text;
        break;
      case AnswerEvent::Kind::kCallBegin:
        deltas.push_back({.tool_calls = {{.index = one.call, .id = one.id, .name = one.name}}});
        break;
      case AnswerEvent::Kind::kArguments:
        if (!goes_on) deltas.push_back({.tool_calls = {{.index = one.call}}});
        deltas.back().tool_calls.back().arguments += one.text;
        break;
      case AnswerEvent::Kind::kCallEnd:
        continue;
    }
    last = &one;
  }
  return deltas;
}

}  // namespace

ChatStream::ChatStream(AnswerHead head, const ChatRequest& request,
                       std::vector<std::int32_t> prompt, const Logprobs& logprobs)
    : request_(request),
      logprobs_(logprobs),
      frame_{std::move(head), "chat.completion.chunk", request.include_usage},
      prompt_(std::move(prompt)),
      choices_(static_cast<std::size_t>(request.sampling.n),
               Choice{ShownTokens(logprobs.names(), prompt_)}) {}

std::vector<Json> ChatStream::push(const Event& event, const std::vector<AnswerEvent>& news,
                                   const ChoiceReader& reader) {
  std::vector<Json> chunks;
  const auto add = [&](ChatChunk chunk) {
    chunk.index = event.choice;
    chunks.push_back(chunk.json(frame_));
  };
  Choice& choice = choices_[static_cast<std::size_t>(event.choice)];
  if (!std::exchange(choice.begun, true)) add({.has_role = true});
  std::vector<ChatChunk> deltas = deltas_of(news);
  if (request_.sampling.logprobs) {
    // They are those of all tokens, whichever of the deltas these belong to.
    const std::vector<ShownToken> tokens = choice.tokens.add(event);
    if (!tokens.empty() && deltas.empty()) deltas.push_back({.content = ""});
    if (!tokens.empty()) deltas.front().logprobs = logprobs_.chat(tokens);
  }
  for (ChatChunk& delta : deltas) add(std::move(delta));
  if (!event.finish) return chunks;
  const ChoiceEnd end{*event.finish, event.stop_string, event.end_token};
  add({.finish_reason = finish_reason(end.reason, reader),
       .stop_reason = stop_reason(end, request_.sampling.stop_tokens)});
  usage_.add(event.usage, event.choice == 0, reader.reasoning_tokens());
  return chunks;
}

Json ChatStream::empty_chunk(std::int32_t choice) const {
  return ChatChunk{.index = choice}.json(frame_);
}

std::optional<Json> ChatStream::usage_chunk() const {
  if (!frame_.include_usage) return std::nullopt;
  return frame_.usage_chunk(usage_);
}

}  // namespace bl::openai
