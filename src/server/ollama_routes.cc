// Ollama's routes that generate text: chat and generate.

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/completion_request.h"
#include "api/ollama/answer_lines.h"
#include "api/ollama/chat_body.h"
#include "api/ollama/rfc3339.h"
#include "api/request_error.h"
#include "api/typed_members.h"
#include "base/json.h"
#include "server/chat_reply.h"
#include "server/json_lines.h"
#include "server/keep_alive.h"
#include "server/model_lookup.h"
#include "server/routes.h"

namespace bl::server {
namespace {

using std::chrono::steady_clock;

class LinesReply : public ChatReply {
 public:
  LinesReply(const PreparedChat& chat, ollama::AnswerLines lines)
      : ChatReply(chat.turn.reading, 1), lines_(std::move(lines)) {}

  void on_news(const Event& event, const std::vector<AnswerEvent>& news,
               http::Exchange& to) override {
    for (const Json& line : lines_.push(event, news)) stream_.write(to, line);
  }
  void on_end(http::Exchange& to) override { to.end(); }
  void on_error(const Error& error, http::Exchange& to) override {
    if (!stream_.begun()) return to.respond(error_response(ErrorShape::kOllama, error));
    stream_.write(to, error_body(ErrorShape::kOllama, error));
    to.end();
  }
  bool on_quiet(http::Exchange& to) override {
    stream_.write(to, lines_.empty_line());
    return true;
  }

 private:
  ollama::AnswerLines lines_;
  JsonLines stream_;
};

class WholeLinesReply : public ChatReply {
 public:
  WholeLinesReply(const PreparedChat& chat, ollama::AnswerLines lines)
      : ChatReply(chat.turn.reading, 1), lines_(std::move(lines)) {}

  void on_news(const Event& event, const std::vector<AnswerEvent>& news, http::Exchange&) override {
    for (const Json& line : lines_.push(event, news)) whole_.add(line);
  }
  void on_end(http::Exchange& to) override { respond_json(to, whole_.answer()); }
  void on_error(const Error& error, http::Exchange& to) override {
    to.respond(error_response(ErrorShape::kOllama, error));
  }

 private:
  ollama::AnswerLines lines_;
  ollama::WholeAnswer whole_;
};

// A prompt that is given as it is; nothing in its answer is read as reasoning or as a call.
PreparedChat prepare_ollama_raw(ServerState& state, const OrderedJson& body) {
  PreparedChat chat;
  chat.model = model_for(state, body);
  ServedModel& model = *chat.model;
  const auto completion =
      openai::CompletionRequest::read(body, model.otherwise(), model.sampling());
  chat.turn.request = std::move(completion.engine_requests(model.engine().tokenizer()).front());
  auto reading = std::make_shared<openai::ChatReading>();
  reading->options.separate_reasoning = false;
  reading->options.read_calls = false;
  chat.turn.reading = std::move(reading);
  check_fits(chat.turn.request, model);
  return chat;
}

// Puts the tokens of an earlier answer in front of the prompt.
void add_ollama_context(const OrderedJson& body, PreparedChat& chat) {
  const OrderedJson* context = openai::given_list(body, "context");
  if (context == nullptr || context->empty()) return;
  const std::int64_t vocab = chat.model->engine().session().vocab();
  std::vector<std::int32_t> ids;
  for (const OrderedJson& id : *context) {
    const bool is_id = id.is_number_integer() && id >= 0 && id < vocab;
    if (!is_id) {
      openai::fail_at(ErrorCode::kInvalidArgument, "context",
                      "context has {}, which is no token of the model", json_shown(id));
    }
    ids.push_back(id.get<std::int32_t>());
  }
  std::vector<std::int32_t>& prompt = chat.turn.request.prompt;
  const bool begins_alike = !prompt.empty() && ids.front() == prompt.front();
  // A beginning of text belongs to the front alone.
  ids.insert(ids.end(), prompt.begin() + (begins_alike ? 1 : 0), prompt.end());
  prompt = std::move(ids);
  check_fits(chat.turn.request, *chat.model);
}

PreparedChat prepare_ollama(ServerState& state, const OrderedJson& body, ollama::Route route) {
  if (route == ollama::Route::kChat) return prepare_chat(state, ollama::chat_body(body));
  // A model without a template continues texts.
  const bool has_template = state.model(ollama::model_of(body))->with_text([](const ModelText& t) {
    return t.has_chat_template();
  });
  if (!has_template || openai::read_flag(body, "raw", false)) {
    return prepare_ollama_raw(state, ollama::raw_body(body));
  }
  PreparedChat chat = prepare_chat(state, ollama::generate_chat_body(body));
  add_ollama_context(body, chat);
  return chat;
}

// Loads a model, or with a keep_alive of 0 has it unloaded when it is idle. Returns "done_reason".
const char* load_or_unload(ServerState& state, const std::string& name,
                           std::optional<std::chrono::milliseconds> keep_alive) {
  const ModelInfo info = info_named(state, name);
  const bool leaves = keep_alive == std::chrono::milliseconds(0) && !info.pinned;
  if (leaves && info.state == ModelState::kUnloaded) return "unload";
  const auto model = state.model(name);
  if (keep_alive) state.registry().keep_alive(*model, keep_alive);
  return leaves ? "unload" : "load";
}

void send_ollama_loaded(const ollama::AnswerHead& head, const char* done_reason, bool streamed,
                        http::Exchange& to) {
  const Json line = ollama::loaded(head, done_reason);
  if (!streamed) return respond_json(to, line);
  JsonLines stream;
  stream.write(to, line);
  to.end();
}

void answer_ollama(ServerState& state, const Call& call, ollama::Route route) {
  const auto begin = steady_clock::now();
  const OrderedJson body = call.body();
  const bool streamed = ollama::is_streamed(body);
  ollama::AnswerHead head{
      .route = route, .model = ollama::model_of(body), .clock = ollama::unix_nanoseconds};
  const auto set_load_time = [&] {
    head.load_nanoseconds =
        std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now() - begin).count();
  };
  const auto keep_alive = keep_alive_of(body);
  if (ollama::asks_for_loading(body, route == ollama::Route::kChat)) {
    const char* done_reason = load_or_unload(state, head.model, keep_alive);
    set_load_time();
    return send_ollama_loaded(head, done_reason, streamed, *call.exchange);
  }
  PreparedChat chat = prepare_ollama(state, body, route);
  if (keep_alive) state.registry().keep_alive(*chat.model, keep_alive);
  set_load_time();
  const bool has_context =
      route == ollama::Route::kGenerate && !openai::read_flag(body, "raw", false);
  ollama::AnswerLines lines(std::move(head),
                            has_context ? chat.turn.request.prompt : std::vector<std::int32_t>());
  std::unique_ptr<Reply> reply;
  if (streamed) {
    reply = std::make_unique<LinesReply>(chat, std::move(lines));
  } else {
    reply = std::make_unique<WholeLinesReply>(chat, std::move(lines));
  }
  run_chat(state, call, std::move(chat), std::move(reply));
}

}  // namespace

void add_ollama_routes(Router& router, ServerState& state) {
  router.add(
      {.method = "POST",
       .pattern = "/api/chat",
       .shape = ErrorShape::kOllama,
       .summary = "Answer a conversation, in Ollama's form",
       .handle = [&state](const Call& call) { answer_ollama(state, call, ollama::Route::kChat); }});
  router.add({.method = "POST",
              .pattern = "/api/generate",
              .shape = ErrorShape::kOllama,
              .summary = "Answer or continue a text, in Ollama's form",
              .handle = [&state](const Call& call) {
                answer_ollama(state, call, ollama::Route::kGenerate);
              }});
}

}  // namespace bl::server
