// What the server says of itself.

#include "server/status_routes.h"

#include <fmt/format.h>

#include <ctime>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "server/llama_request.h"
#include "server/openapi.h"
#include "server/routes.h"

namespace bl::server {
namespace {

// llama-server's form where all is well, and its error beside ours where something is wrong.
http::Response health_answer(const HealthMonitor& health) {
  const HealthMonitor::Verdict verdict = health.verdict();
  if (verdict.good) return json_response(200, {{"status", "ok"}});
  http::Response response = json_response(
      503,
      {{"status", verdict.status},
       {"error", {{"code", 503}, {"message", verdict.message}, {"type", "unavailable_error"}}}});
  response.fields.push_back({"Retry-After", "1"});
  return response;
}

std::int64_t places_of(ServedModel& model) { return model.engine().session().sequences(); }

// The state of an engine. A stuck engine is not waited for.
EngineStats stats_of(ServedModel& model, const HealthMonitor& health) {
  return health.stuck() ? model.engine().stats() : model.engine().settled_stats();
}

Json props_of(ServedModel& model) {
  const Tokenizer& tokenizer = model.engine().tokenizer();
  SamplingParams sampling = model.sampling();
  OrderedJson params = llama_settings(sampling);
  const auto chat_template = tokenizer.chat_template();
  return {{"default_generation_settings",
           {{"n_ctx", model.engine().context()}, {"params", Json(params)}}},
          {"total_slots", places_of(model)},
          {"model_alias", model.name()},
          {"model_path", model.file()},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"chat_template", chat_template ? *chat_template : ""},
          {"bos_token", tokenizer.bos_token()},
          {"eos_token", tokenizer.eos_token()},
          {"build_info", "bitloom"},
          {"is_sleeping", false}};
}

Json slots_of(ServedModel& model, const EngineStats& stats) {
  Json slots = Json::array();
  for (std::int64_t i = 0; i < places_of(model); ++i) {
    slots.push_back({{"id", i},
                     {"n_ctx", model.engine().context()},
                     {"speculative", stats.drafted_tokens > 0},
                     {"is_processing", i < stats.running}});
  }
  return slots;
}

[[noreturn]] void refuse_switched_off(const char* what, const char* flag) {
  throw HttpError(501, "not_supported",
                  fmt::format("{} is switched off; start the server without {}", what, flag));
}

// `started`: of the server, in Unix seconds.
http::Response metrics_answer(const StatusSources& from, std::int64_t started) {
  if (!from.metrics) refuse_switched_off("/metrics", "--no-metrics");
  std::vector<Metrics::ModelState> models;
  for (const auto& model : from.state.models()) {
    models.push_back({model->name(), stats_of(*model, from.health)});
  }
  return {200,
          {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"},
           {"Process-Start-Time-Unix", std::to_string(started)}},
          from.books->metrics.text(models)};
}

// The model that the query names, or the one that is loaded.
std::shared_ptr<ServedModel> model_of_query(const StatusSources& from, const Call& call) {
  return from.state.model(call.request().parameter("model").value_or(""));
}

}  // namespace

void add_status_routes(Router& router, const StatusSources& from) {
  for (const char* pattern : {"/health", "/v1/health"}) {
    router.add({.method = "GET",
                .pattern = pattern,
                .access = Access::kOpen,
                .shape = ErrorShape::kLlama,
                .quick = true,
                .summary = "Whether requests are answered",
                .handle = [from](const Call& call) {
                  call.exchange->respond(health_answer(from.health));
                }});
  }
  const auto add = [&](const char* pattern, const char* summary, auto make, bool quick = false) {
    router.add(
        {.method = "GET",
         .pattern = pattern,
         .shape = ErrorShape::kLlama,
         .quick = quick,
         .summary = summary,
         .handle = [from, make](const Call& call) { call.exchange->respond(make(from, call)); }});
  };
  add("/props", "The model, its template and its defaults",
      [](const StatusSources& s, const Call& call) {
        return json_response(200, props_of(*model_of_query(s, call)));
      });
  add("/slots", "The places at which requests are computed",
      [](const StatusSources& s, const Call& call) {
        if (!s.slots) refuse_switched_off("/slots", "--no-slots");
        const auto model = model_of_query(s, call);
        const EngineStats stats = stats_of(*model, s.health);
        const bool wants_free = call.request().parameter("fail_on_no_slot").has_value();
        if (wants_free && stats.running >= places_of(*model)) {
          throw HttpError(503, "", "no slot is free");
        }
        return json_response(200, slots_of(*model, stats));
      });
  add("/metrics", "Counts and times for Prometheus",
      [started = std::time(nullptr)](const StatusSources& s, const Call&) {
        return metrics_answer(s, started);
      });
  router.add({.method = "GET",
              .pattern = "/openapi.json",
              .access = Access::kOpen,
              .quick = true,
              .summary = "This document",
              .handle = [&router](const Call& call) {
                respond_json(*call.exchange, openapi_document(router));
              }});
}

}  // namespace bl::server
