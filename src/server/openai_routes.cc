// OpenAI's routes that generate text: chat completions and completions.

#include <ctime>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "api/answers.h"
#include "api/chat_stream.h"
#include "api/completion_stream.h"
#include "api/request_error.h"
#include "base/json.h"
#include "server/chat_reply.h"
#include "server/live_timings.h"
#include "server/llama_request.h"
#include "server/routes.h"
#include "server/sse.h"
#include "text/tokenizer.h"

namespace bl::server {
namespace {

// Ends a stream with the error, or answers with it where nothing was sent yet.
void send_error(SseStream& stream, const Error& error, http::Exchange& to) {
  if (!stream.begun()) return to.respond(error_response(ErrorShape::kOpenAi, error));
  stream.data(to, error_body(ErrorShape::kOpenAi, error));
  stream.last(to);
  to.end();
}

std::size_t choices_of(const openai::RequestFields& body) {
  return static_cast<std::size_t>(body.sampling.n);
}

// Whether a chunk only says whose answer begins.
bool begins_answer(const Json& chunk) {
  const Json& choices = chunk.at("choices");
  return !choices.empty() && choices[0].at("delta").contains("role");
}

class ChatStreamReply : public ChatReply {
 public:
  ChatStreamReply(openai::ChatRequest body, openai::AnswerHead head, const PreparedChat& chat)
      : ChatReply(chat.turn.reading, choices_of(body)),
        model_(chat.model),
        body_(std::move(body)),
        chunks_(std::move(head), body_, chat.turn.request.prompt, model_->logprobs()),
        timings_(chat.prompt_tokens()) {}

  void on_news(const Event& event, const std::vector<AnswerEvent>& news,
               http::Exchange& to) override {
    const std::vector<Json> progress = progress_in(event);
    std::vector<Json> chunks = chunks_.push(event, news, reader(event.choice));
    // Clients expect the role in the first chunk.
    const bool begins = !chunks.empty() && begins_answer(chunks.front());
    chunks.insert(chunks.begin() + (begins ? 1 : 0), progress.begin(), progress.end());
    if (event.finish && !chunks.empty()) chunks.back()["timings"] = Json(timings_.json());
    for (Json& chunk : chunks) {
      if (body_.timings_per_token && !begins_answer(chunk)) {
        chunk["timings"] = Json(timings_.json());
      }
      stream_.data(to, chunk);
    }
  }
  void on_end(http::Exchange& to) override {
    if (auto usage = chunks_.usage_chunk()) {
      (*usage)["timings"] = Json(timings_.json());
      stream_.data(to, *usage);
    }
    stream_.last(to);
    to.end();
  }
  void on_error(const Error& error, http::Exchange& to) override { send_error(stream_, error, to); }
  bool on_quiet(http::Exchange& to) override {
    stream_.comment(to);
    return true;
  }

 private:
  // Takes the time of an event, and returns the chunks that tell how far the prompt is by it.
  std::vector<Json> progress_in(const Event& event) {
    std::vector<Json> chunks;
    timings_.follow(event, [&] {
      if (!body_.return_progress) return;
      chunks.push_back(chunks_.empty_chunk(event.choice));
      chunks.back()["prompt_progress"] = Json(timings_.progress());
    });
    return chunks;
  }

  std::shared_ptr<ServedModel> model_;
  openai::ChatRequest body_;
  openai::ChatStream chunks_;
  LiveTimings timings_;
  SseStream stream_;
};

class WholeChatReply : public ChatReply {
 public:
  WholeChatReply(openai::ChatRequest body, openai::AnswerHead head, const PreparedChat& chat)
      : ChatReply(chat.turn.reading, choices_of(body)),
        model_(chat.model),
        body_(std::move(body)),
        head_(std::move(head)),
        prompt_(chat.turn.request.prompt),
        timings_(chat.prompt_tokens()),
        choices_(choices_of(body_)) {}

  void on_news(const Event& event, const std::vector<AnswerEvent>& news, http::Exchange&) override {
    timings_.add(event);
    choices_[static_cast<std::size_t>(event.choice)].add(event, news, reader(event.choice));
  }
  void on_end(http::Exchange& to) override { respond_json(to, answer()); }
  void on_error(const Error& error, http::Exchange& to) override {
    to.respond(error_response(ErrorShape::kOpenAi, error));
  }
  // The whole answer, once all choices are over.
  Json answer() const {
    Json answer = chat_completion(head_, body_, {prompt_, choices_}, model_->logprobs());
    answer["timings"] = Json(timings_.json());
    if (body_.verbose) answer["__verbose"] = verbose();
    return answer;
  }

 private:
  // What the model was given, for whoever debugs a template.
  Json verbose() const {
    return {{"prompt", model_->engine().tokenizer().decode(prompt_, false)},
            {"content", choices_.front().answer.text},
            {"generation_settings", Json(llama_settings(body_.sampling))}};
  }

  std::shared_ptr<ServedModel> model_;
  openai::ChatRequest body_;
  openai::AnswerHead head_;
  std::vector<std::int32_t> prompt_;
  LiveTimings timings_;
  std::vector<openai::ChatChoice> choices_;
};

void answer_chat(ServerState& state, const Call& call) {
  PreparedChat chat = prepare_chat(state, call.body());
  chat.id = ServerState::new_id("chatcmpl-");
  openai::AnswerHead head{chat.id, std::time(nullptr), chat.model->name()};
  std::unique_ptr<Reply> reply;
  if (chat.body.stream) {
    reply = std::make_unique<ChatStreamReply>(chat.body, std::move(head), chat);
  } else {
    reply = std::make_unique<WholeChatReply>(chat.body, std::move(head), chat);
  }
  run_chat(state, call, std::move(chat), std::move(reply));
}

// The answers to several conversations, in one list.
class PredictionsReply : public Reply {
 public:
  explicit PredictionsReply(std::vector<std::unique_ptr<WholeChatReply>> replies)
      : replies_(std::move(replies)) {}

  void on_event(std::size_t request, Event event, http::Exchange& to) override {
    replies_.at(request)->on_event(0, std::move(event), to);
  }
  void on_end(http::Exchange& to) override {
    Json predictions = Json::array();
    for (const auto& reply : replies_) predictions.push_back(reply->answer());
    respond_json(to, {{"predictions", std::move(predictions)}});
  }
  void on_error(const Error& error, http::Exchange& to) override {
    to.respond(error_response(ErrorShape::kOpenAi, error));
  }

 private:
  std::vector<std::unique_ptr<WholeChatReply>> replies_;
};

// Vertex AI's form of requests to a model of one's own: {"instances": [body of a chat, …]}.
void predict(ServerState& state, const Call& call) {
  constexpr std::size_t kMostInstances = 256;
  const OrderedJson body = call.body();
  const OrderedJson* instances = openai::given(body, "instances");
  if (instances == nullptr || !instances->is_array() || instances->empty() ||
      instances->size() > kMostInstances) {
    openai::fail_at(ErrorCode::kInvalidArgument, "instances",
                    "instances should be a list of 1 to {} bodies of chats", kMostInstances);
  }
  Generation::Args args;
  args.to = call.exchange;
  args.queue = &state.answers();
  args.id = ServerState::new_id("predict-");
  args.owner = call.rights.key_name;
  std::vector<std::unique_ptr<WholeChatReply>> replies;
  for (const OrderedJson& instance : *instances) {
    if (!instance.is_object() || openai::read_flag(instance, "stream", false)) {
      openai::fail_at(ErrorCode::kInvalidArgument, "instances",
                      "instances: {} should be the body of a chat without stream",
                      json_shown(instance));
    }
    PreparedChat chat = prepare_chat(state, instance);
    if (args.model != nullptr && args.model != chat.model) {
      openai::fail_at(ErrorCode::kInvalidArgument, "instances",
                      "all instances of a request should name the same model");
    }
    args.model = chat.model;
    openai::AnswerHead head{ServerState::new_id("chatcmpl-"), std::time(nullptr),
                            chat.model->name()};
    replies.push_back(std::make_unique<WholeChatReply>(chat.body, std::move(head), chat));
    args.requests.push_back(std::move(chat.turn.request));
  }
  args.reply = std::make_unique<PredictionsReply>(std::move(replies));
  state.run(std::make_shared<Generation>(std::move(args)));
}

// The body of a completion, and what was made of it.
struct AskedCompletion {
  std::shared_ptr<ServedModel> model;
  openai::CompletionRequest body;
  openai::AnswerHead head;
  std::vector<std::vector<std::int32_t>> prompts;
};

class CompletionStreamReply : public Reply {
 public:
  explicit CompletionStreamReply(AskedCompletion asked)
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
  AskedCompletion asked_;
  openai::CompletionStream chunks_;
  SseStream stream_;
};

// Collects the answers to all prompts of a request.
class WholeCompletionReply : public Reply {
 public:
  explicit WholeCompletionReply(AskedCompletion asked)
      : asked_(std::move(asked)),
        answers_(asked_.prompts.size(), std::vector<Answer>(choices_of(asked_.body))) {}

  void on_event(std::size_t request, Event event, http::Exchange&) override {
    answers_[request].at(static_cast<std::size_t>(event.choice)).add(std::move(event));
  }
  void on_error(const Error& error, http::Exchange& to) override {
    to.respond(error_response(ErrorShape::kOpenAi, error));
  }
  void on_end(http::Exchange& to) override {
    std::vector<openai::AnsweredPrompt> answered;
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      answered.push_back({asked_.prompts[i], answers_[i]});
    }
    to.respond(json_response(
        200, text_completion(asked_.head, asked_.body, answered, asked_.model->logprobs())));
  }

 private:
  AskedCompletion asked_;
  std::vector<std::vector<Answer>> answers_;
};

void answer_completion(ServerState& state, const Call& call) {
  const OrderedJson json = call.body();
  AskedCompletion asked;
  asked.model = model_for(state, json);
  asked.body =
      openai::CompletionRequest::read(json, asked.model->otherwise(), asked.model->sampling());
  asked.head = {ServerState::new_id("cmpl-"), std::time(nullptr), asked.model->name()};
  std::vector<Request> requests = asked.body.engine_requests(asked.model->engine().tokenizer());
  for (const Request& request : requests) {
    check_fits(request, *asked.model);
    asked.prompts.push_back(request.prompt);
  }
  Generation::Args args{.model = asked.model,
                        .requests = std::move(requests),
                        .to = call.exchange,
                        .queue = &state.answers(),
                        .id = asked.head.id,
                        .owner = call.rights.key_name};
  if (asked.body.stream) {
    args.reply = std::make_unique<CompletionStreamReply>(std::move(asked));
  } else {
    args.reply = std::make_unique<WholeCompletionReply>(std::move(asked));
  }
  state.run(std::make_shared<Generation>(std::move(args)));
}

}  // namespace

void add_openai_routes(Router& router, ServerState& state) {
  router.add({.method = "POST",
              .pattern = "/v1/chat/completions",
              .summary = "Answer a conversation",
              .handle = [&state](const Call& call) { answer_chat(state, call); }});
  router.add({.method = "POST",
              .pattern = "/v1/chat/completions/input_tokens",
              .summary = "Count the tokens of a conversation",
              .handle = [&state](const Call& call) {
                const std::int64_t tokens = count_prompt_tokens(state, call.body());
                call.exchange->respond(json_response(
                    200, {{"object", "response.input_tokens"}, {"input_tokens", tokens}}));
              }});
  router.add({.method = "POST",
              .pattern = "/predict",
              .summary = "Answer several conversations, in Vertex AI's form",
              .handle = [&state](const Call& call) { predict(state, call); }});
  router.add({.method = "POST",
              .pattern = "/v1/completions",
              .summary = "Continue a text",
              .handle = [&state](const Call& call) { answer_completion(state, call); }});
}

}  // namespace bl::server
