// KoboldAI's and KoboldCpp's routes.

#include <algorithm>
#include <memory>
#include <utility>

#include "base/json.h"
#include "engine/engine.h"
#include "server/kobold_reply.h"
#include "server/kobold_request.h"
#include "server/native_request.h"
#include "server/routes.h"
#include "text/tokenizer.h"

namespace bl::server {
namespace {

using Answers = std::shared_ptr<KoboldAnswers>;

// The versions that the clients compare with what they need.
constexpr const char* kApiVersion = "1.2.5";
constexpr const char* kCppVersion = "1.74";

struct Adder {
  Router& router;
  bool quick = false;

  // Under /api/v1/ also as /api/latest/.
  template <class Handle>
  void operator()(const char* method, const std::string& pattern, const char* summary,
                  Handle handle) const {
    const auto add = [&](std::string path) {
      router.add({.method = method,
                  .pattern = std::move(path),
                  .shape = ErrorShape::kKobold,
                  .quick = quick,
                  .summary = summary,
                  .handle = handle});
    };
    add("/api" + pattern);
    constexpr std::string_view kFirst = "/v1/";
    const std::string rest =
        pattern.starts_with(kFirst) ? pattern.substr(kFirst.size() - 1) : pattern;
    add("/api/latest" + rest);
  }
};

void generate(ServerState& state, const Answers& answers, const Call& call, bool stream) {
  const OrderedJson body = call.body();
  KoboldRequest asked = KoboldRequest::read(body, native_model(state, body));
  auto text = std::make_shared<KoboldAnswers::Text>();
  std::vector<Request> requests;
  requests.push_back(asked.engine_request());
  auto reply = std::make_unique<KoboldReply>(KoboldReply::Args{
      stream, static_cast<std::size_t>(asked.fields.sampling.n), !asked.trim_stop, text});
  auto generation = std::make_shared<Generation>(Generation::Args{
      asked.model, std::move(requests), std::move(reply), call.exchange, &state.answers()});
  answers->add(call.rights.key_name, asked.genkey, generation, std::move(text));
  state.run(std::move(generation));
}

// A member of a body that is read on the thread of the sockets, and therefore short. Some clients
// send no body.
std::string short_text(const Call& call, const char* key) {
  constexpr std::size_t kMostBody = 4096;
  const std::size_t size = call.request().body.size();
  if (size == 0) return {};
  if (size > kMostBody) throw HttpError(413, "", "the body is too large for this route");
  return read_text(call.body(), key);
}

void check(const Answers& answers, const Call& call) {
  const std::string text = answers->text_of(call.rights.key_name, short_text(call, "genkey"));
  respond_json(*call.exchange, {{"results", Json::array({{{"text", text}}})}});
}

Json count_tokens(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  const auto model = native_model(state, body);
  const bool special = openai::read_flag(body, "special", true);
  const std::vector<std::int32_t> ids =
      model->engine().tokenizer().encode(read_text(body, "prompt"), {.add_special = special});
  return {{"value", ids.size()}, {"ids", ids}};
}

void add_generation(Router& router, ServerState& state) {
  const auto answers = std::make_shared<KoboldAnswers>();
  const Adder add{router};
  add("POST", "/v1/generate", "Continue a text",
      [&state, answers](const Call& call) { generate(state, answers, call, false); });
  add("POST", "/extra/generate/stream", "Continue a text, piece by piece",
      [&state, answers](const Call& call) { generate(state, answers, call, true); });
  add("POST", "/extra/tokencount", "Count the tokens of a text",
      [&state](const Call& call) { respond_json(*call.exchange, count_tokens(state, call)); });
  const Adder quick{router, true};
  for (const char* method : {"GET", "POST"}) {
    quick(method, "/extra/generate/check", "The text so far of an answer that is being made",
          [answers](const Call& call) { check(answers, call); });
  }
  quick("POST", "/extra/abort", "End an answer that is being made", [answers](const Call& call) {
    const bool ended = answers->abort(call.rights.key_name, short_text(call, "genkey"));
    call.exchange->respond(json_response(
        200, {{"success", ended ? "true" : "false"}, {"done", ended ? "true" : "false"}}));
  });
}

void add_values(Router& router, ServerState& state) {
  const Adder add{router, true};
  const auto answer = [](auto make) {
    return [make](const Call& call) { respond_json(*call.exchange, make()); };
  };
  add("GET", "/v1/model", "The name of the model", answer([&state] {
        return Json{{"result", "bitloom/" + state.model("")->name()}};
      }));
  const auto context = answer([&state] {
    return Json{{"value", state.model("")->engine().context()}};
  });
  add("GET", "/v1/config/max_context_length", "Tokens of a prompt and its answer", context);
  add("GET", "/extra/true_max_context_length", "Tokens of a prompt and its answer", context);
  add("GET", "/v1/config/max_length", "Tokens of an answer", answer([&state] {
        return Json{{"value", std::min(kKoboldMaxLength, state.model("")->engine().context() / 2)}};
      }));
  add("GET", "/v1/info/version", "The version of Kobold's API", answer([] {
        return Json{{"result", kApiVersion}};
      }));
  add("GET", "/extra/version", "The version of KoboldCpp's API", answer([] {
        return Json{{"result", "KoboldCpp"}, {"version", kCppVersion}, {"protected", false},
                    {"txt2img", false},      {"vision", false},        {"transcribe", false},
                    {"multiplayer", false},  {"websearch", false},     {"tts", false}};
      }));
  add("GET", "/extra/perf", "How the server is doing", answer([&state] {
        const EngineStats stats = state.model("")->engine().stats();
        return Json{{"last_process", 0},      {"last_eval", 0},
                    {"last_token_count", 0},  {"total_gens", stats.decode_tokens},
                    {"queue", stats.waiting}, {"idle", stats.running == 0 ? 1 : 0}};
      }));
  add("GET", "/v1/config/soft_prompts_list", "Soft prompts: there are none", answer([] {
        return Json{{"values", Json::array()}};
      }));
  add("GET", "/v1/config/soft_prompt", "The soft prompt: none", answer([] {
        return Json{{"value", ""}};
      }));
  add("PUT", "/v1/config/soft_prompt", "Choose a soft prompt: only none is accepted",
      [](const Call& call) {
        if (!short_text(call, "value").empty()) {
          throw HttpError(400, "", "there are no soft prompts here; send an empty value");
        }
        respond_json(*call.exchange, Json::object());
      });
}

}  // namespace

void add_kobold_routes(Router& router, ServerState& state) {
  add_generation(router, state);
  add_values(router, state);
}

}  // namespace bl::server
