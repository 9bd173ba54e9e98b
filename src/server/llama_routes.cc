// llama-server's own routes that generate or look at text.

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "api/chat_request.h"
#include "api/request_error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "server/infill.h"
#include "server/llama_reply.h"
#include "server/llama_request.h"
#include "server/native_request.h"
#include "server/routes.h"
#include "text/tokenizer.h"

namespace bl::server {
namespace {

using openai::fail_at;
using openai::given;

void generate(ServerState& state, const Call& call, LlamaRequest asked, LlamaForm form) {
  std::vector<Request> requests = asked.engine_requests();
  const std::shared_ptr<ServedModel> model = asked.model;
  state.run(std::make_shared<Generation>(Generation::Args{
      model, std::move(requests), std::make_unique<LlamaReply>(std::move(asked), form),
      call.exchange, &state.answers()}));
}

void complete(ServerState& state, const Call& call, LlamaForm form) {
  const OrderedJson body = call.body();
  LlamaRequest asked = LlamaRequest::read(body, native_model(state, body));
  asked.read_prompts(body);
  generate(state, call, std::move(asked), form);
}

InfillParts read_parts(const OrderedJson& body) {
  for (const char* key : {"input_prefix", "input_suffix"}) {
    if (given(body, key) == nullptr) {
      fail_at(ErrorCode::kInvalidArgument, key, "{} is missing; it may be an empty text", key);
    }
  }
  InfillParts parts{read_text(body, "input_prefix"), read_text(body, "input_suffix"),
                    read_text(body, "prompt")};
  const OrderedJson* extra = given(body, "input_extra");
  if (extra == nullptr) return parts;
  constexpr std::size_t kMostFiles = 1024;
  if (!extra->is_array() || extra->size() > kMostFiles) {
    fail_at(ErrorCode::kInvalidArgument, "input_extra",
            "input_extra should be a list of at most {} objects with filename and text",
            kMostFiles);
  }
  for (const OrderedJson& file : *extra) {
    if (!file.is_object() || given(file, "text") == nullptr) {
      fail_at(ErrorCode::kInvalidArgument, "input_extra",
              "input_extra: {} should be an object with filename and text", json_shown(file));
    }
    const std::string name = read_text(file, "filename");
    parts.files.emplace_back(name.empty() ? "tmp" : name, read_text(file, "text"));
  }
  return parts;
}

void infill(ServerState& state, const Call& call) {
  const OrderedJson body = call.body();
  LlamaRequest asked = LlamaRequest::read(body, native_model(state, body));
  const Tokenizer& tokenizer = asked.model->engine().tokenizer();
  const InfillParts parts = read_parts(body);
  const auto tokens = find_infill_tokens(tokenizer);
  if (!tokens) {
    throw HttpError(501, "not_supported",
                    "infill is not supported by this model: its vocabulary has no tokens for the "
                    "prefix, the suffix and the middle");
  }
  const std::int64_t answer = asked.n_predict > 0 ? asked.n_predict : 256;
  const std::int64_t context = asked.model->engine().context();
  const std::int64_t most = std::max(context - answer - 1, context / 2);
  asked.prompts.push_back(infill_prompt(tokenizer, *tokens, parts, static_cast<std::size_t>(most)));
  generate(state, call, std::move(asked), LlamaForm::kNative);
}

// A token's text, or its bytes where they are no text.
Json piece_of(const openai::TokenNames& names, std::int32_t id) {
  const std::string bytes = names.bytes(id);
  if (is_valid_utf8(bytes)) return bytes;
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

Json tokenize(ServedModel& model, const OrderedJson& body) {
  const bool add_special = openai::read_flag(body, "add_special", false);
  const bool parse_special = openai::read_flag(body, "parse_special", true);
  const bool with_pieces = openai::read_flag(body, "with_pieces", false);
  const std::string text = read_text(body, "content");
  Json tokens = Json::array();
  for (const std::int32_t id : model.engine().tokenizer().encode(
           text, {.add_special = add_special, .parse_special = parse_special})) {
    if (with_pieces) {
      tokens.push_back({{"id", id}, {"piece", piece_of(model.logprobs().names(), id)}});
    } else {
      tokens.push_back(id);
    }
  }
  return {{"tokens", std::move(tokens)}};
}

std::vector<std::int32_t> read_ids(const OrderedJson& body, const char* key) {
  std::vector<std::int32_t> ids;
  const OrderedJson* list = given(body, key);
  if (list == nullptr) return ids;
  if (!list->is_array()) {
    fail_at(ErrorCode::kInvalidArgument, key, "{} is {}, should be a list of token ids", key,
            json_shown(*list));
  }
  for (const OrderedJson& id : *list) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
      fail_at(ErrorCode::kInvalidArgument, key, "{}: {} is no token id", key, json_shown(id));
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

std::string apply_template(ServedModel& model, const OrderedJson& body) {
  const auto chat = openai::ChatRequest::read(body, model.otherwise(), model.sampling());
  return model.with_chats([&](const ModelText& text, openai::AnswerFormats& formats) {
    return chat.prompt_text(text, formats);
  });
}

}  // namespace

void add_llama_routes(Router& router, ServerState& state) {
  const auto add = [&](const char* pattern, const char* summary, auto handle) {
    router.add({.method = "POST",
                .pattern = pattern,
                .shape = ErrorShape::kLlama,
                .summary = summary,
                .handle = [&state, handle](const Call& call) { handle(state, call); }});
  };
  add("/completion", "Continue a text",
      [](ServerState& s, const Call& call) { complete(s, call, LlamaForm::kNative); });
  add("/completions", "Continue a text; the answer has OpenAI's members as well",
      [](ServerState& s, const Call& call) { complete(s, call, LlamaForm::kBoth); });
  add("/infill", "Fill a gap in code", infill);
  add("/tokenize", "Turn a text into token ids", [](ServerState& s, const Call& call) {
    const OrderedJson body = call.body();
    respond_json(*call.exchange, tokenize(*native_model(s, body), body));
  });
  add("/detokenize", "Turn token ids into a text", [](ServerState& s, const Call& call) {
    const OrderedJson body = call.body();
    const std::vector<std::int32_t> ids = read_ids(body, "tokens");
    const std::string text = native_model(s, body)->engine().tokenizer().decode(ids, false);
    respond_json(*call.exchange, {{"content", text}});
  });
  add("/apply-template", "Show a conversation as the model gets it",
      [](ServerState& s, const Call& call) {
        const OrderedJson body = call.body();
        respond_json(*call.exchange, {{"prompt", apply_template(*native_model(s, body), body)}});
      });
}

}  // namespace bl::server
