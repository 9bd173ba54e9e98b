// Anthropic's routes: messages, and the count of their tokens.

#include <memory>
#include <utility>

#include "api/anthropic/message_stream.h"
#include "api/anthropic/messages_request.h"
#include "base/json.h"
#include "server/chat_reply.h"
#include "server/routes.h"
#include "server/sse.h"

namespace bl::server {
namespace {

class MessageStreamReply : public ChatReply {
 public:
  MessageStreamReply(const PreparedChat& chat, anthropic::MessageHead head)
      : ChatReply(chat.turn.reading, 1), events_(std::move(head)) {}

  void on_news(const Event& event, const std::vector<AnswerEvent>& news,
               http::Exchange& to) override {
    for (const Json& one : events_.push(event, news)) send(one, to);
  }
  void on_end(http::Exchange& to) override { to.end(); }
  void on_error(const Error& error, http::Exchange& to) override {
    if (!stream_.begun()) return to.respond(error_response(ErrorShape::kAnthropic, error));
    send(error_body(ErrorShape::kAnthropic, error), to);
    to.end();
  }
  bool on_quiet(http::Exchange& to) override {
    if (stream_.begun()) {
      send({{"type", "ping"}}, to);
    } else {
      stream_.comment(to);  // clients want message_start to be the first event
    }
    return true;
  }

 private:
  void send(const Json& event, http::Exchange& to) {
    stream_.event(to, event.at("type").get_ref<const std::string&>(), event);
  }

  anthropic::MessageStream events_;
  SseStream stream_;
};

class WholeMessageReply : public ChatReply {
 public:
  WholeMessageReply(const PreparedChat& chat, anthropic::MessageHead head)
      : ChatReply(chat.turn.reading, 1), events_(std::move(head)) {}

  void on_news(const Event& event, const std::vector<AnswerEvent>& news, http::Exchange&) override {
    for (const Json& one : events_.push(event, news)) whole_.add(one);
  }
  void on_end(http::Exchange& to) override { respond_json(to, whole_.message()); }
  void on_error(const Error& error, http::Exchange& to) override {
    to.respond(error_response(ErrorShape::kAnthropic, error));
  }

 private:
  anthropic::MessageStream events_;
  anthropic::WholeMessage whole_;
};

void answer_message(ServerState& state, const Call& call) {
  PreparedChat chat = prepare_chat(state, anthropic::chat_body(call.body()));
  chat.turn.request.tell_start = true;
  anthropic::MessageHead head{ServerState::new_id("msg_"), chat.model->name(),
                              chat.prompt_tokens()};
  chat.id = head.id;
  std::unique_ptr<Reply> reply;
  if (chat.body.stream) {
    reply = std::make_unique<MessageStreamReply>(chat, std::move(head));
  } else {
    reply = std::make_unique<WholeMessageReply>(chat, std::move(head));
  }
  run_chat(state, call, std::move(chat), std::move(reply));
}

}  // namespace

void add_anthropic_routes(Router& router, ServerState& state) {
  router.add({.method = "POST",
              .pattern = "/v1/messages",
              .shape = ErrorShape::kAnthropic,
              .summary = "Answer a conversation, in Anthropic's form",
              .handle = [&state](const Call& call) { answer_message(state, call); }});
  router.add({.method = "POST",
              .pattern = "/v1/messages/count_tokens",
              .shape = ErrorShape::kAnthropic,
              .summary = "Count the tokens of a conversation in Anthropic's form",
              .handle = [&state](const Call& call) {
                const std::int64_t tokens =
                    count_prompt_tokens(state, anthropic::chat_body(call.body()));
                respond_json(*call.exchange, {{"input_tokens", tokens}});
              }});
}

}  // namespace bl::server
