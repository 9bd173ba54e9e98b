#include "api/answers.h"

#include <utility>

#include "api/echoed_prompt.h"
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
                     const AnsweredChat& answered, const Logprobs& logprobs) {
  Json choices = Json::array();
  UsageTotal usage;
  for (const ChatChoice& one : answered.choices) {
    const Answer& answer = one.answer;
    usage.add(answer.usage, choices.empty(), one.reasoning_tokens);
    Json& choice = choices.emplace_back(choice_json(answer, request, choices.size()));
    choice["finish_reason"] = one.finish;
    choice["message"] = one.message();
    if (request.sampling.logprobs) choice["logprobs"] = logprobs.chat(answer, answered.prompt);
  }
  Json body = head_json(head, "chat.completion");
  body["choices"] = std::move(choices);
  body["usage"] = usage.json();
  if (request.sampling.prompt_logprobs >= 0) {
    body["prompt_logprobs"] = logprobs.prompt(answered.choices.front().answer);
  }
  return body;
}

Json text_completion(const AnswerHead& head, const CompletionRequest& request,
                     std::span<const AnsweredPrompt> answered, const Logprobs& logprobs) {
  Json choices = Json::array();
  for (std::size_t i = 0; i < answered.size(); ++i) {
    const AnsweredPrompt& one = answered[i];
    // They are the prompt's, so the first of its choices has them for all.
    const Answer& first = one.choices.front();
    const EchoedPrompt echo = EchoedPrompt::of(request, i, logprobs);
    for (const Answer& answer : one.choices) {
      Json& choice = choices.emplace_back(choice_json(answer, request, choices.size()));
      choice["text"] = echo.text + answer.text;
      if (request.sampling.logprobs) {
        Json own = logprobs.completion(answer, one.prompt);
        choice["logprobs"] =
            request.echo ? Logprobs::behind_echo(logprobs.echo(one.prompt, first.prompt_logprobs),
                                                 own, echo.characters)
                         : std::move(own);
      }
      if (!request.tells_prompt_logprobs) continue;
      choice["prompt_logprobs"] = &answer == &first ? logprobs.prompt(answer) : Json();
    }
  }
  Json body = head_json(head, "text_completion");
  body["choices"] = std::move(choices);
  body["usage"] = usage_of(answered).json();
  return body;
}

}  // namespace bl::openai
