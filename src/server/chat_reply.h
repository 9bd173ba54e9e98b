#pragma once
#include <memory>
#include <string>
#include <vector>

#include "api/chat_request.h"
#include "api/chat_turn.h"
#include "base/json.h"
#include "server/generation.h"
#include "server/router.h"
#include "server/server_state.h"

namespace bl::server {

// The common part of replies to chats, whatever the protocol: reads reasoning and tool calls out of
// the engine's events.
class ChatReply : public Reply {
 public:
  // `choices`: how many answers the request asks for.
  ChatReply(std::shared_ptr<const openai::ChatReading> reading, std::size_t choices);

  void on_event(std::size_t request, Event event, http::Exchange& to) final;

 protected:
  // `news` is what `event` adds to the reading of its choice. The event with `finish` is the
  // choice's last one.
  virtual void on_news(const Event& event, const std::vector<AnswerEvent>& news,
                       http::Exchange& to) = 0;
  const openai::ChoiceReader& reader(std::int32_t choice) const {
    return readers_[static_cast<std::size_t>(choice)];
  }

 private:
  std::vector<openai::ChoiceReader> readers_;
};

// A chat on its way into the engine.
struct PreparedChat {
  std::shared_ptr<ServedModel> model;
  openai::ChatRequest body;
  openai::ChatTurn turn;
  std::string id{};  // of the answer, by which clients may name the request while it runs
  std::int64_t prompt_tokens() const {
    return static_cast<std::int64_t>(turn.request.prompt.size());
  }
};

// Reads a body of the form of /v1/chat/completions, finds its model and renders its prompt. The
// routes of other protocols translate their bodies into this form first. Throws HttpError and
// openai::RequestError: for a model that is not here (404), for a prompt that does not fit the
// context (400, context_length_exceeded), for wrong fields (400).
PreparedChat prepare_chat(ServerState& state, const OrderedJson& body);

// How many tokens the prompt of such a body has. Prompts that do not fit are counted, too: clients
// ask in order to find out.
std::int64_t count_prompt_tokens(ServerState& state, const OrderedJson& body);

// The model that a body names. Throws HttpError 404 where it is not here.
std::shared_ptr<ServedModel> model_for(ServerState& state, const OrderedJson& body);

// Throws openai::ContextOverflow for a prompt that leaves no room for an answer.
void check_fits(const Request& request, ServedModel& model);

// Submits the chat; `reply` gets its events. The answer goes to the call's exchange.
void run_chat(ServerState& state, const Call& call, PreparedChat chat,
              std::unique_ptr<Reply> reply);

}  // namespace bl::server
