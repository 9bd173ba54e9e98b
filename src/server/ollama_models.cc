// Ollama's routes that tell of the models and of the server.

#include <fmt/format.h>

#include <string>
#include <utility>

#include "api/ollama/chat_body.h"
#include "api/ollama/model_card.h"
#include "base/json.h"
#include "base/sip_hash.h"
#include "server/model_folder.h"
#include "server/model_lookup.h"
#include "server/route_table.h"
#include "server/routes.h"

namespace bl::server {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;  // nanoseconds
// The version of Ollama's API that these routes have; clients look there for what they may ask.
constexpr const char* kOllamaVersion = "0.13.0";
// When a model is unloaded that is never unloaded: 2200-01-01.
constexpr std::int64_t kNever = 7'258'118'400LL * kSecond;

// Tells models apart, and is the same after a restart. It is no hash of the weights.
std::string ollama_digest(const ModelInfo& info, std::uint64_t bytes) {
  std::string digest;
  for (std::uint64_t key : {0, 1}) {
    SipHash hash(key);
    hash.update(info.names.front());
    hash.update(bytes);
    digest += hash.finish().hex();
  }
  return digest;
}

void add_facts(const ModelCard& known, ollama::ModelCard& card) {
  const SessionFacts& facts = known.facts;
  card.architecture = facts.architecture;
  card.model_context = facts.train_context;
  card.context = facts.context;
  card.layers = facts.layers;
  card.hidden = facts.hidden;
  card.vocabulary = facts.vocab;
  card.chat_template = known.chat_template;
  card.calls_tools = known.has_tools;
  card.thinks = known.has_reasoning;
  if (facts.parameters == 0) return;
  const auto parameters = static_cast<double>(facts.parameters);
  card.parameters = parameters < 1e9 ? fmt::format("{:.1f}M", parameters / 1e6)
                                     : fmt::format("{:.1f}B", parameters / 1e9);
  card.quantization =
      fmt::format("{:.1f} bits", static_cast<double>(facts.weights) * 8 / parameters);
}

ollama::ModelCard ollama_card(const ModelInfo& info, const std::string& name) {
  ollama::ModelCard card;
  card.name = name;
  const bool has_files = !info.path.empty();
  card.modified = (has_files ? modified_at(info.path) : info.loaded_at) * kSecond;
  if (has_files) card.bytes = bytes_on_disk(info.path);
  if (info.path.extension() == ".gguf") card.format = "gguf";
  if (info.card != nullptr) {
    add_facts(*info.card, card);
    if (!has_files) card.bytes = info.card->facts.weights;
  }
  card.device_bytes = info.memory.device;
  card.host_bytes = info.memory.host;
  card.digest = ollama_digest(info, card.bytes);
  return card;
}

void send_tags(ServerState& state, const Call& call) {
  Json models = Json::array();
  for (const ModelInfo& info : state.registry().list()) {
    for (const std::string& name : info.names) {
      if (name != "*") models.push_back(tags_entry(ollama_card(info, name)));
    }
  }
  respond_json(*call.exchange, {{"models", std::move(models)}});
}

std::int64_t expires_at(const ModelInfo& info) {
  if (!info.expires) return kNever;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(info.expires->time_since_epoch())
      .count();
}

void send_running(ServerState& state, const Call& call) {
  Json models = Json::array();
  for (const ModelInfo& info : state.registry().list()) {
    if (info.state != ModelState::kLoaded) continue;
    models.push_back(running_entry(ollama_card(info, info.names.front()), expires_at(info)));
  }
  respond_json(*call.exchange, {{"models", std::move(models)}});
}

// A model is not loaded for this, so what is told of one that never was is less.
void send_shown(ServerState& state, const Call& call) {
  const std::string name = ollama::model_of(call.body());
  respond_json(*call.exchange, shown(ollama_card(info_named(state, name), name)));
}

void send_version(ServerState&, const Call& call) {
  respond_json(*call.exchange, {{"version", kOllamaVersion}});
}

constexpr StateRoute kOllamaModelRoutes[] = {
    {"GET", "/api/tags", Access::kKey, "List the models, in Ollama's form", send_tags,
     ErrorShape::kOllama},
    {"GET", "/api/ps", Access::kKey, "List the loaded models, in Ollama's form", send_running,
     ErrorShape::kOllama},
    {"POST", "/api/show", Access::kKey, "Describe a model, in Ollama's form", send_shown,
     ErrorShape::kOllama},
    {"GET", "/api/version", Access::kKey, "The version of Ollama's API", send_version,
     ErrorShape::kOllama}};

}  // namespace

void add_ollama_model_routes(Router& router, ServerState& state) {
  add_routes(router, state, kOllamaModelRoutes);
}

}  // namespace bl::server
