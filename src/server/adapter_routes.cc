// LoRA adapters, in the words of TabbyAPI and llama.cpp's server.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "api/request_error.h"
#include "api/request_fields.h"
#include "base/json.h"
#include "base/log.h"
#include "server/chat_reply.h"
#include "server/request_body.h"
#include "server/route_table.h"
#include "server/routes.h"
#include "server/slow_work.h"

namespace bl::server {
namespace {

constexpr double kMostWeight = 1e4;

double checked_weight(const OrderedJson& body, const char* key) {
  const double weight = number_in(body, key, 1);
  if (!(std::fabs(weight) <= kMostWeight)) {
    openai::fail_at(ErrorCode::kInvalidArgument, key, "{} should be within ±{}", key, kMostWeight);
  }
  return weight;
}

Json adapter_json(const std::string& name, std::optional<double> weight) {
  Json json = {{"id", name}, {"object", "lora"}, {"owned_by", "bitloom"}, {"created", 0}};
  json["scaling"] = weight ? Json(*weight) : Json();
  json["loaded"] = weight.has_value();
  return json;
}

Json active_adapters(const ServedModel& model) {
  Json data = Json::array();
  for (const ServedAdapter& adapter : model.adapters()) {
    data.push_back(adapter_json(adapter.name, adapter.weight));
  }
  return {{"object", "list"}, {"data", data}};
}

// All that there are: first those that are loaded.
void list_adapters(ServerState& state, const Call& call) {
  Json list = {{"object", "list"}, {"data", Json::array()}};
  std::vector<std::string> shown;
  for (const auto& model : state.models()) {
    for (const ServedAdapter& adapter : model->adapters()) {
      list["data"].push_back(adapter_json(adapter.name, adapter.weight));
      shown.push_back(adapter.name);
    }
  }
  for (const auto& item : state.folders().adapters.list()) {
    if (std::find(shown.begin(), shown.end(), item.name) != shown.end()) continue;
    list["data"].push_back(adapter_json(item.name, std::nullopt));
  }
  respond_json(*call.exchange, list);
}

void show_active(ServerState& state, const Call& call) {
  respond_json(*call.exchange, active_adapters(*state.model({})));
}

// The adapters that a body asks for, without their places.
std::vector<ServedAdapter> adapters_in(const OrderedJson& body) {
  const OrderedJson* loras = openai::given(body, "loras");
  if (loras == nullptr || !loras->is_array()) {
    openai::fail_at(ErrorCode::kInvalidArgument, "loras",
                    "loras should be a list of objects with name and scaling");
  }
  std::vector<ServedAdapter> adapters;
  for (const OrderedJson& each : *loras) {
    if (!each.is_object()) {
      openai::fail_at(ErrorCode::kInvalidArgument, "loras", "an adapter should be an object");
    }
    adapters.push_back({needed_text(each, "name"), {}, checked_weight(each, "scaling")});
  }
  return adapters;
}

// Loads adapters, which are used by all requests from then on. Each that fails is named, and the
// others are loaded.
void load_adapters(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  std::vector<ServedAdapter> wanted = adapters_in(body);
  if (!state.folders().adapters.given()) {
    throw HttpError(400, "no_adapter_folder",
                    "the server was started without --loras, the folder of adapters");
  }
  const auto model = model_for(state, body);
  run_slowly(state, call, ErrorShape::kOpenAi,
             [&state, to = call.exchange, model, wanted = std::move(wanted)] {
               Json success = Json::array();
               Json failure = Json::array();
               for (ServedAdapter adapter : wanted) {
                 const auto item = state.folders().adapters.find(adapter.name);
                 try {
                   if (!item) fail(ErrorCode::kNotFound, "there is no such adapter");
                   adapter.path = item->path;
                   model->load_adapter(adapter);
                   success.push_back(adapter.name);
                 } catch (const Error& error) {
                   log_warning("the adapter {} could not be loaded: {}",
                               adapter.name.substr(0, 200), error.what());
                   failure.push_back(adapter.name);
                 }
               }
               respond_json(*to, {{"success", success}, {"failure", failure}});
             });
}

void unload_adapters(ServerState& state, const Call& call) {
  const auto model = model_for(state, optional_body(call));
  for (const ServedAdapter& adapter : model->adapters()) model->unload_adapter(adapter.name);
  respond_json(*call.exchange, {{"success", true}});
}

// llama.cpp's server numbers its adapters.
void list_numbered(ServerState& state, const Call& call) {
  Json list = Json::array();
  for (const ServedAdapter& adapter : state.model({})->adapters()) {
    list.push_back({{"id", list.size()},
                    {"name", adapter.name},
                    {"path", adapter.path.filename().string()},
                    {"scale", adapter.weight}});
  }
  respond_json(*call.exchange, list);
}

void set_numbered(ServerState& state, const Call& call) {
  OrderedJson body;
  try {
    body = parse_ordered_json(call.request().body, "the body of the request");
  } catch (const Error& error) {
    throw HttpError(400, "", error.what());
  }
  if (!body.is_array()) {
    throw HttpError(400, "", "the body should be a list of objects with id and scale");
  }
  std::vector<std::pair<std::size_t, double>> weights;
  for (const OrderedJson& each : body) {
    if (!each.is_object()) throw HttpError(400, "", "an adapter should be an object");
    const std::int64_t id = count_in(each, "id", -1);
    if (id < 0) openai::fail_at(ErrorCode::kInvalidArgument, "id", "id is missing");
    weights.emplace_back(static_cast<std::size_t>(id), checked_weight(each, "scale"));
  }
  state.model({})->set_adapter_weights(weights);
  respond_json(*call.exchange, {{"success", true}});
}

constexpr StateRoute kAdapterRoutes[] = {
    {"GET", "/v1/loras", Access::kKey, "List the adapters", list_adapters},
    {"GET", "/v1/lora/list", Access::kKey, "List the adapters", list_adapters},
    {"GET", "/v1/lora", Access::kKey, "List the adapters in use", show_active},
    {"POST", "/v1/lora/load", Access::kAdmin, "Load adapters", load_adapters},
    {"POST", "/v1/lora/unload", Access::kAdmin, "Unload all adapters", unload_adapters},
    {"GET", "/lora-adapters", Access::kKey, "List the adapters in use", list_numbered},
    {"POST", "/lora-adapters", Access::kAdmin, "Set the adapters' weights", set_numbered},
};

}  // namespace

void add_adapter_routes(Router& router, ServerState& state) {
  add_routes(router, state, kAdapterRoutes);
}

}  // namespace bl::server
