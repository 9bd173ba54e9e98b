// OpenAI's routes that generate text: chat completions and completions.

#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "api/answers.h"
#include "api/chat_stream.h"
#include "api/completion_stream.h"
#include "base/json.h"
#include "server/routes.h"
#include "server/sse.h"

namespace bl::server {
namespace {

// A body, and what was made of it.
template <class Body>
struct Asked {
  std::shared_ptr<ServedModel> model;
  Body body;
  openai::AnswerHead head;
  std::vector<std::vector<std::int32_t>> prompts;
};

// Ends a stream with the error, or answers with it where nothing was sent yet.
void send_error(SseStream& stream, const Error& error, http::Exchange& to) {
  if (!stream.begun()) return to.respond(error_response(ErrorShape::kOpenAi, error));
  stream.data(to, error_body(ErrorShape::kOpenAi, error));
  stream.last(to);
  to.end();
}

class ChatStreamReply : public Reply {
 public:
  explicit ChatStreamReply(Asked<openai::ChatRequest> asked)
      : asked_(std::move(asked)),
        chunks_(asked_.head, asked_.body, asked_.prompts.front(), asked_.model->logprobs()) {}

  void on_event(std::size_t, Event event, http::Exchange& to) override {
    for (const Json& chunk : chunks_.push(event)) stream_.data(to, chunk);
  }
  void on_end(http::Exchange& to) override {
    if (const auto usage = chunks_.usage_chunk()) stream_.data(to, *usage);
    stream_.last(to);
    to.end();
  }
  void on_error(const Error& error, http::Exchange& to) override { send_error(stream_, error, to); }
  bool on_quiet(http::Exchange& to) override {
    stream_.comment(to);
    return true;
  }

 private:
  Asked<openai::ChatRequest> asked_;
  openai::ChatStream chunks_;
  SseStream stream_;
};

class CompletionStreamReply : public Reply {
 public:
  explicit CompletionStreamReply(Asked<openai::CompletionRequest> asked)
      : asked_(std::move(asked)),
        chunks_(asked_.head, asked_.body, asked_.prompts, asked_.model->logprobs()) {}

  void on_event(std::size_t request, Event event, http::Exchange& to) override {
    if (const auto chunk = chunks_.push(request, event)) stream_.data(to, *chunk);
  }
  void on_end(http::Exchange& to) override {
    if (const auto usage = chunks_.usage_chunk()) stream_.data(to, *usage);
    stream_.last(to);
    to.end();
  }
  void on_error(const Error& error, http::Exchange& to) override { send_error(stream_, error, to); }
  bool on_quiet(http::Exchange& to) override {
    stream_.comment(to);
    return true;
  }

 private:
  Asked<openai::CompletionRequest> asked_;
  openai::CompletionStream chunks_;
  SseStream stream_;
};

// Collects the answers to all prompts of a request.
class WholeReply : public Reply {
 public:
  WholeReply(std::vector<std::vector<std::int32_t>> prompts, std::size_t choices)
      : prompts_(std::move(prompts)), answers_(prompts_.size(), std::vector<Answer>(choices)) {}

  void on_event(std::size_t request, Event event, http::Exchange&) override {
    answers_[request].at(static_cast<std::size_t>(event.choice)).add(std::move(event));
  }
  void on_error(const Error& error, http::Exchange& to) override {
    to.respond(error_response(ErrorShape::kOpenAi, error));
  }
  void on_end(http::Exchange& to) override {
    std::vector<openai::AnsweredPrompt> answered;
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      answered.push_back({prompts_[i], answers_[i]});
    }
    to.respond(json_response(200, whole(answered)));
  }

 protected:
  virtual Json whole(const std::vector<openai::AnsweredPrompt>& answered) = 0;

 private:
  std::vector<std::vector<std::int32_t>> prompts_;
  std::vector<std::vector<Answer>> answers_;
};

std::size_t choices_of(const openai::RequestFields& body) {
  return static_cast<std::size_t>(body.sampling.n);
}

class WholeChatReply : public WholeReply {
 public:
  explicit WholeChatReply(Asked<openai::ChatRequest> asked)
      : WholeReply(std::move(asked.prompts), choices_of(asked.body)), asked_(std::move(asked)) {}

 private:
  Json whole(const std::vector<openai::AnsweredPrompt>& answered) override {
    return chat_completion(asked_.head, asked_.body, answered.front(), asked_.model->logprobs());
  }
  Asked<openai::ChatRequest> asked_;
};

class WholeCompletionReply : public WholeReply {
 public:
  explicit WholeCompletionReply(Asked<openai::CompletionRequest> asked)
      : WholeReply(std::move(asked.prompts), choices_of(asked.body)), asked_(std::move(asked)) {}

 private:
  Json whole(const std::vector<openai::AnsweredPrompt>& answered) override {
    return text_completion(asked_.head, asked_.body, answered, asked_.model->logprobs());
  }
  Asked<openai::CompletionRequest> asked_;
};

std::string model_named_in(const OrderedJson& body) {
  const OrderedJson* name = openai::given(body, "model");
  return name != nullptr && name->is_string() ? name->get<std::string>() : std::string();
}

std::vector<Request> requests_of(const openai::ChatRequest& body, const ServedModel& model) {
  std::vector<Request> requests;
  requests.push_back(
      model.with_text([&](const ModelText& text) { return body.engine_request(text); }));
  return requests;
}

std::vector<Request> requests_of(const openai::CompletionRequest& body, ServedModel& model) {
  return body.engine_requests(model.engine().tokenizer());
}

template <class Body, class Stream, class Whole>
void generate(ServerState& state, const Call& call, const char* prefix) {
  const OrderedJson json = call.body();
  Asked<Body> asked;
  asked.model = state.model(model_named_in(json));
  asked.body = Body::read(json, asked.model->otherwise(), asked.model->sampling());
  asked.head = {ServerState::new_id(prefix), std::time(nullptr), asked.model->name()};
  std::vector<Request> requests = requests_of(asked.body, *asked.model);
  for (const Request& request : requests) asked.prompts.push_back(request.prompt);
  const std::shared_ptr<ServedModel> model = asked.model;
  std::unique_ptr<Reply> reply;
  if (asked.body.stream) {
    reply = std::make_unique<Stream>(std::move(asked));
  } else {
    reply = std::make_unique<Whole>(std::move(asked));
  }
  state.run(std::make_shared<Generation>(Generation::Args{
      model, std::move(requests), std::move(reply), call.exchange, &state.answers()}));
}

}  // namespace

void add_openai_routes(Router& router, ServerState& state) {
  router.add({.method = "POST",
              .pattern = "/v1/chat/completions",
              .summary = "Answer a conversation",
              .handle = [&state](const Call& call) {
                generate<openai::ChatRequest, ChatStreamReply, WholeChatReply>(state, call,
                                                                               "chatcmpl-");
              }});
  router.add({.method = "POST",
              .pattern = "/v1/completions",
              .summary = "Continue a text",
              .handle = [&state](const Call& call) {
                generate<openai::CompletionRequest, CompletionStreamReply, WholeCompletionReply>(
                    state, call, "cmpl-");
              }});
}

}  // namespace bl::server
