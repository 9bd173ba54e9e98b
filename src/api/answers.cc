#include "api/answers.h"

#include <utility>

#include "api/finish.h"
#include "api/usage_total.h"
#include "base/error.h"
#include "base/json.h"

namespace bl::openai {
namespace {

// The members that choices of both kinds have.
Json choice_json(const Answer& answer, const RequestFields& request, std::size_t index) {
  if (answer.reason == FinishReason::kError) throw Error(answer.code, answer.error);
  const ChoiceEnd end{answer.reason, answer.stop_string, answer.end_token};
  return {{"index", index},
          {"finish_reason", finish_reason(answer.reason)},
          {"stop_reason", stop_reason(end, request.sampling.stop_tokens)},
          {"logprobs", nullptr}};
}

UsageTotal usage_of(std::span<const AnsweredPrompt> answered) {
  UsageTotal usage;
  for (const AnsweredPrompt& one : answered) {
    for (const Answer& answer : one.choices) {
      usage.add(answer.usage, &answer == &one.choices.front());
    }
  }
  return usage;
}

}  // namespace

Json chat_completion(const AnswerHead& head, const ChatRequest& request,
                     const AnsweredPrompt& answered, const Logprobs& logprobs) {
  Json choices = Json::array();
  for (const Answer& answer : answered.choices) {
    Json& choice = choices.emplace_back(choice_json(answer, request, choices.size()));
    choice["message"] = {{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
    if (request.sampling.logprobs) choice["logprobs"] = logprobs.chat(answer, answered.prompt);
  }
  Json body = head_json(head, "chat.completion");
  body["choices"] = std::move(choices);
  body["usage"] = usage_of({&answered, 1}).json();
  if (request.sampling.prompt_logprobs >= 0) {
    body["prompt_logprobs"] = logprobs.prompt(answered.choices.front());
  }
  return body;
}

Json text_completion(const AnswerHead& head, const CompletionRequest& request,
                     std::span<const AnsweredPrompt> answered, const Logprobs& logprobs) {
  Json choices = Json::array();
  for (const AnsweredPrompt& one : answered) {
    for (const Answer& answer : one.choices) {
      Json& choice = choices.emplace_back(choice_json(answer, request, choices.size()));
      choice["text"] = answer.text;
      if (request.sampling.logprobs) choice["logprobs"] = logprobs.completion(answer, one.prompt);
      if (request.sampling.prompt_logprobs < 0) continue;
      // They are the prompt's, so all of its choices would say the same.
      const bool is_first = &answer == &one.choices.front();
      choice["prompt_logprobs"] = is_first ? logprobs.prompt(answer) : Json();
    }
  }
  Json body = head_json(head, "text_completion");
  body["choices"] = std::move(choices);
  body["usage"] = usage_of(answered).json();
  return body;
}

}  // namespace bl::openai
