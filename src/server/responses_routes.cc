// OpenAI's route for responses. Nothing is stored: each request has the whole conversation.

#include <ctime>
#include <memory>
#include <utility>

#include "api/responses/response_request.h"
#include "api/responses/response_stream.h"
#include "base/json.h"
#include "server/chat_reply.h"
#include "server/routes.h"
#include "server/sse.h"

namespace bl::server {
namespace {

class ResponseStreamReply : public ChatReply {
 public:
  ResponseStreamReply(const PreparedChat& chat, responses::ResponseHead head)
      : ChatReply(chat.turn.reading, 1), events_(std::move(head)) {}

  void on_news(const Event& event, const std::vector<AnswerEvent>& news,
               http::Exchange& to) override {
    for (const Json& one : events_.push(event, news, reader(event.choice).reasoning_tokens()))
      send(one, to);
  }
  void on_end(http::Exchange& to) override { to.end(); }
  void on_error(const Error& error, http::Exchange& to) override {
    if (!stream_.begun()) return to.respond(error_response(ErrorShape::kOpenAi, error));
    const Json body = error_body(ErrorShape::kOpenAi, error).at("error");
    const Json& code = body.at("code").is_null() ? body.at("type") : body.at("code");
    send(events_.failed({{"code", code}, {"message", body.at("message")}}), to);
    to.end();
  }
  bool on_quiet(http::Exchange& to) override {
    stream_.comment(to);
    return true;
  }

 private:
  void send(const Json& event, http::Exchange& to) {
    stream_.event(to, event.at("type").get_ref<const std::string&>(), event);
  }

  responses::ResponseStream events_;
  SseStream stream_;
};

class WholeResponseReply : public ChatReply {
 public:
  WholeResponseReply(const PreparedChat& chat, responses::ResponseHead head)
      : ChatReply(chat.turn.reading, 1), events_(std::move(head)) {}

  void on_news(const Event& event, const std::vector<AnswerEvent>& news, http::Exchange&) override {
    for (Json& one : events_.push(event, news, reader(event.choice).reasoning_tokens()))
      last_ = std::move(one);
  }
  void on_end(http::Exchange& to) override { respond_json(to, last_.at("response")); }
  void on_error(const Error& error, http::Exchange& to) override {
    to.respond(error_response(ErrorShape::kOpenAi, error));
  }

 private:
  responses::ResponseStream events_;
  Json last_;
};

void answer_response(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  PreparedChat chat = prepare_chat(state, responses::chat_body(body));
  responses::ResponseHead head{ServerState::new_id("resp_"), chat.model->name(), std::time(nullptr),
                               responses::echoed_fields(body), ServerState::new_id};
  chat.id = head.id;
  std::unique_ptr<Reply> reply;
  if (chat.body.stream) {
    reply = std::make_unique<ResponseStreamReply>(chat, std::move(head));
  } else {
    reply = std::make_unique<WholeResponseReply>(chat, std::move(head));
  }
  run_chat(state, call, std::move(chat), std::move(reply));
}

}  // namespace

void add_responses_routes(Router& router, ServerState& state) {
  router.add({.method = "POST",
              .pattern = "/v1/responses",
              .summary = "Answer a conversation, in the form of OpenAI's responses",
              .handle = [&state](const Call& call) { answer_response(state, call); }});
}

}  // namespace bl::server
