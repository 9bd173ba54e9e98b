// Routes about requests that run: their clients, and administrators, may change or end them.

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "api/request_error.h"
#include "base/json.h"
#include "sample/sampling_json.h"
#include "server/routes.h"

namespace bl::server {
namespace {

// What the engine settles when a request is submitted.
constexpr std::array<std::string_view, 15> kSettled{
    "n",         "best_of",         "max_tokens",         "stop",
    "logprobs",  "stop_token_ids",  "banned_strings",     "token_healing",
    "cfg_scale", "negative_prompt", "top_logprobs",       "logprobs_after",
    "seed",      "prompt_logprobs", "loop_detect_window",
};

// The running generation that a call names. Throws HttpError 404 where there is none, and 403 where
// it is another client's.
std::shared_ptr<Generation> named_generation(const ServerState& state, const Call& call) {
  std::shared_ptr<Generation> generation = state.generation(call.path_value("id"));
  if (generation == nullptr) {
    throw HttpError(404, "request_not_found",
                    "no request with this id is running; the id is that of the answer");
  }
  if (!call.rights.admin && generation->owner() != call.rights.key_name) {
    throw HttpError(403, "not_your_request",
                    "only the key that began a request, or an admin key, may change it");
  }
  return generation;
}

void change_sampling(const ServerState& state, const Call& call) {
  const std::shared_ptr<Generation> generation = named_generation(state, call);
  const OrderedJson body = call.body();
  Json parameters = Json::object();
  for (const auto& [key, value] : body.items()) {
    const std::string_view name = sampling_key(key);
    if (std::find(kSettled.begin(), kSettled.end(), name) != kSettled.end()) {
      openai::fail_at(ErrorCode::kUnsupported, key,
                      "{} cannot change while the request runs; leave it out", key);
    }
    parameters[key] = value;
  }
  SamplingParams sampling = generation->sampling();
  openai::read_or_blame(parameters, [&](const Json& some) {
    SamplingParams changed = generation->sampling();
    read_sampling(some, "the request", UnknownKeys::kRefuse, changed);
    validate(changed);
    sampling = changed;
  });
  generation->change_sampling(sampling);
  respond_json(*call.exchange, {{"id", generation->id()},
                                {"object", "request.sampling"},
                                {"sampling", write_sampling(sampling, SamplingParams::plain())}});
}

void cancel(const ServerState& state, const Call& call) {
  const std::shared_ptr<Generation> generation = named_generation(state, call);
  generation->cancel();
  respond_json(*call.exchange,
               {{"id", generation->id()}, {"object", "request"}, {"cancelled", true}});
}

}  // namespace

void add_request_routes(Router& router, ServerState& state) {
  router.add({.method = "POST",
              .pattern = "/v1/requests/{id}/sampling",
              .summary = "Change the sampling of a running request",
              .handle = [&state](const Call& call) { change_sampling(state, call); }});
  router.add({.method = "DELETE",
              .pattern = "/v1/requests/{id}",
              .summary = "End a running request",
              .handle = [&state](const Call& call) { cancel(state, call); }});
}

}  // namespace bl::server
