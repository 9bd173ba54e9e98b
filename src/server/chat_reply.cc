#include "server/chat_reply.h"

#include <utility>

#include "api/request_error.h"

namespace bl::server {

ChatReply::ChatReply(std::shared_ptr<const openai::ChatReading> reading, std::size_t choices) {
  readers_.reserve(choices);
  for (std::size_t i = 0; i < choices; ++i) readers_.emplace_back(reading);
}

void ChatReply::on_event(std::size_t, Event event, http::Exchange& to) {
  const std::vector<AnswerEvent> news =
      readers_.at(static_cast<std::size_t>(event.choice)).push(event);
  on_news(event, news, to);
}

std::shared_ptr<ServedModel> model_for(ServerState& state, const OrderedJson& body) {
  const OrderedJson* name = openai::given(body, "model");
  return state.model(name != nullptr && name->is_string() ? name->get<std::string>()
                                                          : std::string());
}

void check_fits(const Request& request, ServedModel& model) {
  const auto tokens = static_cast<std::int64_t>(request.prompt.size());
  if (tokens < model.engine().context()) return;
  throw openai::ContextOverflow(tokens, model.engine().context());
}

PreparedChat prepare_chat(ServerState& state, const OrderedJson& body) {
  PreparedChat chat;
  chat.model = model_for(state, body);
  ServedModel& model = *chat.model;
  chat.body = openai::ChatRequest::read(body, model.otherwise(), model.sampling());
  chat.turn = model.with_chats([&](const ModelText& text, openai::AnswerFormats& formats) {
    return chat.body.turn(text, formats);
  });
  check_fits(chat.turn.request, model);
  return chat;
}

std::int64_t count_prompt_tokens(ServerState& state, const OrderedJson& body) {
  try {
    return prepare_chat(state, body).prompt_tokens();
  } catch (const openai::ContextOverflow& overflow) {
    return overflow.prompt_tokens();
  }
}

void run_chat(ServerState& state, const Call& call, PreparedChat chat,
              std::unique_ptr<Reply> reply) {
  std::vector<Request> requests;
  requests.push_back(std::move(chat.turn.request));
  state.run(std::make_shared<Generation>(Generation::Args{.model = chat.model,
                                                          .requests = std::move(requests),
                                                          .reply = std::move(reply),
                                                          .to = call.exchange,
                                                          .queue = &state.answers(),
                                                          .id = std::move(chat.id),
                                                          .owner = call.rights.key_name}));
}

}  // namespace bl::server
