// What the server says of itself and of its models.

#include "base/json.h"
#include "engine/engine.h"
#include "server/routes.h"

namespace bl::server {
namespace {

Json model_json(const ServedModel& model, const std::string& name, std::int64_t context) {
  return {{"id", name},
          {"object", "model"},
          {"created", model.created()},
          {"owned_by", "bitloom"},
          {"max_model_len", context},
          {"meta", {{"n_ctx", context}}}};
}

Json list_of_models(const ServerState& state) {
  Json data = Json::array();
  for (const auto& model : state.models()) {
    const std::int64_t context = model->engine().context();
    for (const std::string& name : model->names()) {
      if (name != "*") data.push_back(model_json(*model, name, context));
    }
  }
  // Some agents look for "models" in place of "data".
  return {{"object", "list"}, {"data", data}, {"models", data}};
}

}  // namespace

void add_status_routes(Router& router, ServerState& state) {
  const auto health = [&state](const Call& call) {
    const bool loaded = !state.models().empty();
    call.exchange->respond(loaded ? json_response(200, {{"status", "ok"}})
                                  : json_response(503, {{"status", "no model is loaded"}}));
  };
  for (const char* pattern : {"/health", "/v1/health"}) {
    router.add({.method = "GET",
                .pattern = pattern,
                .access = Access::kOpen,
                .quick = true,
                .summary = "Whether requests are answered",
                .handle = health});
  }
}

void add_model_routes(Router& router, ServerState& state) {
  router.add({.method = "GET",
              .pattern = "/v1/models",
              .quick = true,
              .summary = "List the models",
              .handle = [&state](const Call& call) {
                call.exchange->respond(json_response(200, list_of_models(state)));
              }});
  router.add({.method = "GET",
              .pattern = "/v1/models/{model*}",
              .quick = true,
              .summary = "Describe a model",
              .handle = [&state](const Call& call) {
                const std::string& name = call.path_value("model");
                const auto model = state.model(name);
                call.exchange->respond(
                    json_response(200, model_json(*model, name, model->engine().context())));
              }});
}

}  // namespace bl::server
