#include "api/chat_choice.h"

#include <utility>

#include "api/finish.h"
#include "base/json.h"

namespace bl::openai {

void ChatChoice::add(Event event, const std::vector<AnswerEvent>& news,
                     const ChoiceReader& reader) {
  said.add(news);
  if (event.finish) finish = finish_reason(*event.finish, reader);
  reasoning_tokens = reader.reasoning_tokens();
  answer.add(std::move(event));
}

Json ChatChoice::message() const {
  Json message{{"role", "assistant"}, {"content", said.content}, {"refusal", nullptr}};
  if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
  if (said.calls.empty()) return message;
  if (said.content.empty()) message["content"] = nullptr;
  for (const ParsedCall& call : said.calls) {
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

ChatChoice read_choice(Answer answer, const std::shared_ptr<const ChatReading>& reading) {
  ChoiceReader reader(reading);
  Event event;
  event.text = answer.text;
  event.ids = answer.ids;
  event.finish = answer.reason;
  event.code = answer.code;
  event.error = answer.error;
  ChatChoice choice;
  choice.said.add(reader.push(event));
  choice.finish = finish_reason(answer.reason, reader);
  choice.reasoning_tokens = reader.reasoning_tokens();
  choice.answer = std::move(answer);
  return choice;
}

}  // namespace bl::openai
