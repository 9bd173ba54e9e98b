// What TabbyAPI's clients change for all users: chat templates and sampling presets. And its routes
// for tokens.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "api/chat_messages.h"
#include "api/request_error.h"
#include "api/request_fields.h"
#include "base/file.h"
#include "base/json.h"
#include "sample/sampling_preset.h"
#include "server/chat_reply.h"
#include "server/model_lookup.h"
#include "server/request_body.h"
#include "server/route_table.h"
#include "server/routes.h"

namespace bl::server {
namespace {

constexpr std::uint64_t kMostTemplateBytes = 1 << 20;

Json list_of(const std::vector<std::string>& names) {
  return {{"object", "list"}, {"data", names}};
}

void list_templates(ServerState& state, const Call& call) {
  std::vector<std::string> names;
  for (const auto& item : state.folders().templates.list()) names.push_back(item.name);
  Json json = list_of(names);
  for (const auto& model : state.models()) json["selected"][model->name()] = model->template_name();
  respond_json(*call.exchange, json);
}

void switch_template(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  std::string name = text_in(body, "prompt_template_name");
  if (name.empty()) name = needed_text(body, "name");
  if (!state.folders().templates.given()) {
    throw HttpError(400, "no_template_folder",
                    "the server was started without --templates, the folder of chat templates");
  }
  const NamedFolder::Item item = template_named(state, name, "prompt_template_name");
  const auto model = model_for(state, body);
  const std::string source = read_file(item.path, kMostTemplateBytes);
  model->set_template(std::make_shared<const ChatTemplate>(source, item.name), item.name);
  respond_json(*call.exchange, {{"success", true}});
}

void unload_template(ServerState& state, const Call& call) {
  model_for(state, optional_body(call))->set_template(nullptr, {});
  respond_json(*call.exchange, {{"success", true}});
}

void list_presets(ServerState& state, const Call& call) {
  const auto preset = state.registry().preset();
  respond_json(*call.exchange,
               {{"selected_preset", preset ? Json(preset->name()) : Json()},
                {"overrides", preset ? preset->merged(Json::object()) : Json::object()},
                {"presets", SamplingPreset::names(state.folders().presets)}});
}

// A name is looked up among those that there are, since a preset's name could be a path.
SamplingPreset preset_named(const ServerState& state, const std::string& name) {
  const std::filesystem::path& folder = state.folders().presets;
  const std::vector<std::string> names = SamplingPreset::names(folder);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    openai::fail_at(ErrorCode::kInvalidArgument, "preset",
                    "there is no preset '{}'; /v1/sampling/overrides lists those that there are",
                    name.substr(0, 200));
  }
  return SamplingPreset::load(name, folder);
}

void switch_preset(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  const OrderedJson* overrides = openai::given(body, "overrides");
  if (overrides != nullptr && !overrides->is_object()) {
    openai::fail_at(ErrorCode::kInvalidArgument, "overrides", "overrides should be an object");
  }
  const std::string name = text_in(body, "preset");
  if (overrides == nullptr && name.empty()) {
    openai::fail_at(ErrorCode::kInvalidArgument, "preset", "preset or overrides is missing");
  }
  state.registry().set_preset(name.empty()
                                  ? SamplingPreset::parse(Json(*overrides), "request", "overrides")
                                  : preset_named(state, name));
  respond_json(*call.exchange, {{"success", true}});
}

void unload_preset(ServerState& state, const Call& call) {
  state.registry().set_preset(std::nullopt);
  respond_json(*call.exchange, {{"success", true}});
}

void encode_tokens(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  const auto model = model_for(state, body);
  const OrderedJson* text = openai::given(body, "text");
  if (text == nullptr || !(text->is_string() || text->is_array())) {
    openai::fail_at(ErrorCode::kInvalidArgument, "text",
                    "text should be a text or a list of messages");
  }
  std::vector<std::int32_t> ids;
  if (text->is_string()) {
    ids = model->engine().tokenizer().encode(
        text->get_ref<const std::string&>(),
        {.add_special = openai::read_flag(body, "add_bos_token", true),
         .parse_special = openai::read_flag(body, "encode_special_tokens", true)});
  } else {
    const OrderedJson messages = openai::template_messages(*text);
    ids = model->with_text([&](const ModelText& own) { return own.encode_chat(messages); });
  }
  respond_json(*call.exchange, {{"tokens", ids}, {"length", ids.size()}});
}

void decode_tokens(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  const auto model = model_for(state, body);
  const OrderedJson* tokens = openai::given(body, "tokens");
  const bool is_list =
      tokens != nullptr && tokens->is_array() &&
      std::all_of(tokens->begin(), tokens->end(), [](const OrderedJson& id) {
        return id.is_number_integer() && id.get<double>() >= 0 && id.get<double>() <= INT32_MAX;
      });
  if (!is_list) {
    openai::fail_at(ErrorCode::kInvalidArgument, "tokens", "tokens should be a list of token ids");
  }
  const bool show_special = openai::read_flag(body, "decode_special_tokens", true);
  const auto ids = tokens->get<std::vector<std::int32_t>>();
  respond_json(*call.exchange, {{"text", model->engine().tokenizer().decode(ids, !show_special)}});
}

void show_permission(ServerState&, const Call& call) {
  respond_json(*call.exchange, {{"permission", call.rights.admin ? "admin" : "api"}});
}

constexpr StateRoute kAdminRoutes[] = {
    {"GET", "/v1/auth/permission", Access::kKey, "What the key allows", show_permission},
    {"GET", "/v1/templates", Access::kKey, "List the chat templates", list_templates},
    {"GET", "/v1/template/list", Access::kKey, "List the chat templates", list_templates},
    {"POST", "/v1/template/switch", Access::kAdmin, "Use another chat template", switch_template},
    {"POST", "/v1/template/unload", Access::kAdmin, "Use the model's template", unload_template},
    {"GET", "/v1/sampling/overrides", Access::kKey, "List the presets", list_presets},
    {"GET", "/v1/sampling/override/list", Access::kKey, "List the presets", list_presets},
    {"POST", "/v1/sampling/override/switch", Access::kAdmin, "Use a preset", switch_preset},
    {"POST", "/v1/sampling/override/unload", Access::kAdmin, "Use no preset", unload_preset},
    {"POST", "/v1/token/encode", Access::kKey, "Text to tokens", encode_tokens},
    {"POST", "/v1/token/decode", Access::kKey, "Tokens to text", decode_tokens},
};

}  // namespace

void add_admin_routes(Router& router, ServerState& state) {
  add_routes(router, state, kAdminRoutes);
}

}  // namespace bl::server
