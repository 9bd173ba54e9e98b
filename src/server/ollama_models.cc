// Ollama's routes that tell of the models and of the server.

#include <fmt/format.h>

#include <string>
#include <utility>

#include "api/ollama/chat_body.h"
#include "api/ollama/model_card.h"
#include "base/json.h"
#include "base/sip_hash.h"
#include "engine/engine.h"
#include "server/routes.h"

namespace bl::server {
namespace {

// The version of Ollama's API that these routes have; clients look there for what they may ask.
constexpr const char* kOllamaVersion = "0.13.0";
// When a model is unloaded that is never unloaded: 2200-01-01.
constexpr std::int64_t kNever = 7'258'118'400LL * 1'000'000'000;

// Tells models apart, and is the same after a restart. It is no hash of the weights.
std::string ollama_digest(const ServedModel& model, const ollama::ModelCard& card) {
  std::string digest;
  for (std::uint64_t key : {0, 1}) {
    SipHash hash(key);
    hash.update(model.name());
    hash.update(card.architecture);
    hash.update(card.bytes);
    digest += hash.finish().hex();
  }
  return digest;
}

ollama::ModelCard ollama_card(ServedModel& model, const std::string& name) {
  const ModelSession& session = model.engine().session();
  const ModelSpec& spec = session.model().spec();
  ollama::ModelCard card;
  card.name = name;
  card.modified = model.created() * 1'000'000'000;
  card.bytes = session.plan().weights;
  card.device_bytes = session.plan().total();
  card.architecture = spec.architecture;
  card.model_context = spec.max_positions;
  card.context = model.engine().context();
  card.layers = spec.layers;
  card.hidden = spec.hidden;
  card.vocabulary = spec.vocab;
  card.digest = ollama_digest(model, card);
  return card;
}

// Adds what is found out by trying the model's chat template.
void add_abilities(ServedModel& model, ollama::ModelCard& card) {
  model.with_chats([&](const ModelText& text, openai::AnswerFormats& formats) {
    if (!text.has_chat_template()) return;
    card.chat_template = text.chat_template(false).source();
    card.thinks = formats.of(text, false).answers.has_reasoning();
    card.calls_tools = formats.of(text, true).answers.has_calls();
  });
}

// Calls add(model, name) for each name of each model that clients may use.
template <class Add>
void each_ollama_name(const ServerState& state, Add&& add) {
  for (const auto& model : state.models()) {
    for (const std::string& name : model->names()) {
      if (name != "*") add(*model, name);
    }
  }
}

Json ollama_tags(const ServerState& state) {
  Json models = Json::array();
  each_ollama_name(state, [&](ServedModel& model, const std::string& name) {
    models.push_back(tags_entry(ollama_card(model, name)));
  });
  return {{"models", std::move(models)}};
}

Json ollama_running(const ServerState& state) {
  Json models = Json::array();
  for (const auto& model : state.models()) {
    models.push_back(running_entry(ollama_card(*model, model->name()), kNever));
  }
  return {{"models", std::move(models)}};
}

Json ollama_show(const ServerState& state, const OrderedJson& body) {
  const std::string name = ollama::model_of(body);
  const auto model = state.model(name);
  ollama::ModelCard card = ollama_card(*model, name);
  add_abilities(*model, card);
  return shown(card);
}

// Ollama's own programs ask for "/" to find out whether it is there. Browsers get the page.
void greet(const Call& call) {
  const std::string* accept = call.request().field("accept");
  if (accept != nullptr && accept->find("text/html") != std::string::npos) {
    return call.exchange->respond(json_response(200, {{"name", "bitloom"}}));
  }
  call.exchange->respond(
      {200, {{"Content-Type", "text/plain; charset=utf-8"}}, "Ollama is running"});
}

void add_quick(Router& router, const char* pattern, const char* summary,
               std::function<void(Call)> handle) {
  router.add({.method = "GET",
              .pattern = pattern,
              .shape = ErrorShape::kOllama,
              .quick = true,
              .summary = summary,
              .handle = std::move(handle)});
}

}  // namespace

void add_ollama_model_routes(Router& router, ServerState& state) {
  add_quick(router, "/api/tags", "List the models, in Ollama's form", [&state](const Call& call) {
    call.exchange->respond(json_response(200, ollama_tags(state)));
  });
  add_quick(router, "/api/ps", "List the loaded models, in Ollama's form",
            [&state](const Call& call) {
              call.exchange->respond(json_response(200, ollama_running(state)));
            });
  add_quick(router, "/api/version", "The version of Ollama's API", [](const Call& call) {
    call.exchange->respond(json_response(200, {{"version", kOllamaVersion}}));
  });
  router.add({.method = "POST",
              .pattern = "/api/show",
              .shape = ErrorShape::kOllama,
              .summary = "Describe a model, in Ollama's form",
              .handle = [&state](const Call& call) {
                call.exchange->respond(json_response(200, ollama_show(state, call.body())));
              }});
  router.add({.method = "GET",
              .pattern = "/",
              .access = Access::kOpen,
              .quick = true,
              .summary = "Tell that the server is running",
              .handle = greet});
}

}  // namespace bl::server
