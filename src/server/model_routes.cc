// The models: what there is, loading and unloading, in the words of OpenAI, TabbyAPI and
// llama.cpp's server.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "api/request_error.h"
#include "api/request_fields.h"
#include "base/json.h"
#include "server/model_lookup.h"
#include "server/request_body.h"
#include "server/route_table.h"
#include "server/routes.h"
#include "server/sse.h"

namespace bl::server {
namespace {

// What agents look for besides the members of OpenAI: some take "models" for the list, and of its
// entries "slug", "name" or "model" for the id.
Json model_json(const ModelInfo& info, const std::string& name) {
  Json json = {{"id", name},
               {"object", "model"},
               {"created", info.loaded_at != 0 ? info.loaded_at : modified_at(info.path)},
               {"owned_by", "bitloom"},
               {"name", name},
               {"model", name},
               {"slug", name},
               {"display_name", name},
               {"status", {{"value", std::string(name_of(info.state))}}},
               {"loaded", info.state == ModelState::kLoaded},
               {"pinned", info.pinned}};
  if (info.card == nullptr) return json;
  const SessionFacts& facts = info.card->facts;
  json["max_model_len"] = facts.context;
  json["context_length"] = facts.context;
  json["context_window"] = facts.context;
  json["capabilities"] = info.card->capabilities();
  json["meta"] = {{"n_vocab", facts.vocab},
                  {"n_ctx", facts.context},
                  {"n_ctx_train", facts.train_context},
                  {"n_embd", facts.hidden},
                  {"n_layer", facts.layers},
                  {"n_params", facts.parameters},
                  {"size", facts.weights},
                  {"architecture", facts.architecture}};
  return json;
}

Json list_of_models(const ServerState& state) {
  Json data = Json::array();
  for (const ModelInfo& info : state.registry().list()) {
    for (const std::string& name : info.names) {
      if (name != "*") data.push_back(model_json(info, name));
    }
  }
  return {{"object", "list"}, {"data", data}, {"models", data}};
}

// The default model as TabbyAPI describes it.
Json tabby_card(const ServerState& state) {
  for (const ModelInfo& info : state.registry().list()) {
    if (info.card == nullptr || info.state != ModelState::kLoaded) continue;
    const SessionFacts& facts = info.card->facts;
    Json json = model_json(info, info.names.front());
    json["parameters"] = {{"max_seq_len", facts.context},
                          {"cache_size", facts.context * facts.sequences},
                          {"cache_mode", facts.cache_type},
                          {"max_batch_size", facts.sequences},
                          {"prompt_template_content", info.card->chat_template},
                          {"use_vision", false}};
    return json;
  }
  throw HttpError(503, "model_not_loaded", "no model is loaded; load one with POST /v1/model/load");
}

LoadSettings settings_in(const ServerState& state, const OrderedJson& body) {
  LoadSettings settings;
  settings.context = std::max<std::int64_t>(count_in(body, "max_seq_len", 0), 0);
  settings.sequences = std::max<std::int64_t>(count_in(body, "max_batch_size", 0), 0);
  settings.cache = http::lower_case(text_in(body, "cache_mode"));
  settings.rope_scale = number_in(body, "rope_scale", 0);
  const OrderedJson* alpha = openai::given(body, "rope_alpha");
  if (alpha != nullptr && *alpha != "auto") settings.rope_alpha = number_in(body, "rope_alpha", 0);
  if (const std::string name = text_in(body, "prompt_template"); !name.empty()) {
    settings.chat_template = template_named(state, name, "prompt_template").path;
  }
  const OrderedJson* draft = openai::given(body, "draft_model");
  if (draft == nullptr) return settings;
  if (!draft->is_object()) {
    openai::fail_at(ErrorCode::kInvalidArgument, "draft_model",
                    "draft_model should be an object with draft_model_name");
  }
  if (const std::string name = text_in(*draft, "draft_model_name"); !name.empty()) {
    settings.draft = info_named(state, name).path;
  }
  return settings;
}

// A load on its way to one client: progress events, then the last one or an error.
class LoadStream {
 public:
  explicit LoadStream(std::shared_ptr<http::Exchange> to) : to_(std::move(to)) {}

  void progress(std::int64_t done, std::int64_t total) {
    const std::scoped_lock lock(mutex_);
    if (to_->gone() || total <= 0) return;
    const std::int64_t part = std::min(done * kModules / total, kModules - 1);
    send("processing", part, {{"bytes", done}, {"total_bytes", total}});
  }
  void finish(const Error* error) {
    const std::scoped_lock lock(mutex_);
    if (error != nullptr && !stream_.begun()) {
      return to_->respond(error_response(ErrorShape::kOpenAi, *error));
    }
    if (error != nullptr) {
      stream_.data(*to_, error_body(ErrorShape::kOpenAi, *error));
    } else {
      send("finished", kModules, Json::object());
    }
    to_->end();
  }

 private:
  static constexpr std::int64_t kModules = 100;
  void send(const char* status, std::int64_t module, Json more) {
    more["model_type"] = "model";
    more["module"] = module;
    more["modules"] = kModules;
    more["status"] = status;
    stream_.data(*to_, more);
  }

  std::mutex mutex_;
  std::shared_ptr<http::Exchange> to_;
  SseStream stream_;
};

// TabbyAPI's load: the answer is a stream of progress events. The load goes on where the client
// leaves.
void load_model(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  const bool tabbys = openai::given(body, "model_name") != nullptr;
  const std::string name = tabbys ? text_in(body, "model_name") : needed_text(body, "name");
  if (name.empty()) {
    openai::fail_at(ErrorCode::kInvalidArgument, "model_name", "model_name is missing");
  }
  const auto stream = std::make_shared<LoadStream>(call.exchange);
  state.registry().load(
      name, settings_in(state, body),
      [stream](const ModelRegistry::Lease&, const std::shared_ptr<const Error>& error) {
        stream->finish(error.get());
      },
      [stream](std::int64_t done, std::int64_t total) { stream->progress(done, total); });
}

void unload_model(ServerState& state, const Call& call) {
  const OrderedJson body = optional_body(call);
  std::string name = text_in(body, "model_name");
  if (name.empty()) name = text_in(body, "model");
  const bool cancel = openai::read_flag(body, "skip_queue", false);
  state.registry().unload(name, cancel, [to = call.exchange] {
    respond_json(*to, {{"success", true}});
  });
}

// llama.cpp's two: the answer comes at once, and the state is seen in /v1/models.
void begin_load(ServerState& state, const Call& call) {
  const std::string name = needed_text(call.body(), "model");
  state.registry().load(
      name, {}, [](const ModelRegistry::Lease&, const std::shared_ptr<const Error>&) {}, {});
  respond_json(*call.exchange, {{"success", true}});
}

void begin_unload(ServerState& state, const Call& call) {
  state.registry().unload(needed_text(call.body(), "model"), false, [] {});
  respond_json(*call.exchange, {{"success", true}});
}

void send_list(ServerState& state, const Call& call) {
  respond_json(*call.exchange, list_of_models(state));
}

void send_one(ServerState& state, const Call& call) {
  const std::string& name = call.path_value("model");
  respond_json(*call.exchange, model_json(info_named(state, name), name));
}

void send_card(ServerState& state, const Call& call) {
  respond_json(*call.exchange, tabby_card(state));
}

constexpr StateRoute kModelRoutes[] = {
    {"GET", "/v1/models", Access::kKey, "List the models", send_list},
    {"GET", "/v1/model/list", Access::kKey, "List the models", send_list},
    {"GET", "/v1/model/draft/list", Access::kKey, "List the models for drafts", send_list},
    {"GET", "/v1/model/embedding/list", Access::kKey, "List the models", send_list},
    {"GET", "/v1/models/{model*}", Access::kKey, "Describe a model", send_one},
    {"GET", "/v1/model", Access::kKey, "Describe the model that is loaded", send_card},
    {"POST", "/v1/model/load", Access::kAdmin, "Load a model, with progress events", load_model},
    {"POST", "/v1/model/unload", Access::kAdmin, "Free a model", unload_model},
    {"POST", "/v1/models/load", Access::kAdmin, "Begin to load a model", begin_load},
    {"POST", "/v1/models/unload", Access::kAdmin, "Begin to free a model", begin_unload},
};

}  // namespace

void add_model_routes(Router& router, ServerState& state) {
  add_routes(router, state, kModelRoutes);
}

}  // namespace bl::server
