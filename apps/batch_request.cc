#include "batch_request.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "base/json.h"
#include "sample/sampling_json.h"
#include "text/chat_messages.h"

namespace bl {
namespace {

// What a seed is when the request names none: the same at every run, so that a batch that was
// interrupted ends as if it had not been.
std::uint64_t seed_of(const std::string& custom_id) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : custom_id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

void refuse(const OrderedJson& body, const char* key) {
  const auto value = body.find(key);
  if (value == body.end() || value->is_null() || *value == false || *value == "") return;
  fail(ErrorCode::kUnsupported, "{} is not supported in a batch", key);
}

std::vector<std::int32_t> read_ids(const OrderedJson& list) {
  std::vector<std::int32_t> ids;
  for (const OrderedJson& id : list) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      fail(ErrorCode::kInvalidArgument, "prompt: {} is no token id", json_text(id));
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

const char* finish_name(FinishReason reason) {
  const bool is_full = reason == FinishReason::kMaxTokens || reason == FinishReason::kContext;
  return is_full ? "length" : "stop";
}

Json token_json(const TokenChance& chance, const Tokenizer& tokenizer) {
  const std::string text = tokenizer.decode(std::span(&chance.id, 1), false);
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  // JSON has no −∞; OpenAI writes this for what cannot be.
  return {{"token", text}, {"logprob", std::max(chance.logprob, -9999.0f)}, {"bytes", bytes}};
}

Json chat_logprobs(const Answer& answer, const Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const TokenLogprobs& logprobs : answer.logprobs) {
    Json token = token_json(logprobs.token, tokenizer);
    token["top_logprobs"] = Json::array();
    for (const TokenChance& best : logprobs.best) {
      token["top_logprobs"].push_back(token_json(best, tokenizer));
    }
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const Answer& answer, const Tokenizer& tokenizer) {
  Json tokens = Json::array();
  Json chances = Json::array();
  Json best = Json::array();
  Json offsets = Json::array();
  std::size_t offset = 0;
  for (const TokenLogprobs& logprobs : answer.logprobs) {
    const Json token = token_json(logprobs.token, tokenizer);
    tokens.push_back(token["token"]);
    chances.push_back(logprobs.token.logprob);
    offsets.push_back(offset);
    offset += token["token"].get_ref<const std::string&>().size();
    Json top = Json::object();
    for (const TokenChance& chance : logprobs.best) {
      top[token_json(chance, tokenizer)["token"].get<std::string>()] = chance.logprob;
    }
    best.push_back(std::move(top));
  }
  return {{"tokens", tokens},
          {"token_logprobs", chances},
          {"top_logprobs", best},
          {"text_offset", offsets}};
}

}  // namespace

BatchRequest::BatchRequest(const OrderedJson& line, const ModelSession& session,
                           const ConstraintSpec& otherwise, const SamplingPreset* preset)
    : custom_id_(line.at("custom_id").get<std::string>()),
      is_chat_(line.at("url") == "/v1/chat/completions"),
      sampling_(session.defaults().sampling) {
  const OrderedJson& body = line.at("body");
  const auto model = body.find("model");
  if (model != body.end() && model->is_string()) model_ = model->get<std::string>();
  for (const char* key : {"stream", "echo", "suffix"}) refuse(body, key);
  for (const char* key : {"max_tokens", "max_completion_tokens"}) {
    const auto most = body.find(key);  // inside, 0 is "as many as there is room for"
    if (most != body.end() && *most == 0) {
      fail(ErrorCode::kInvalidArgument, "{} is 0, should be at least 1", key);
    }
  }
  constraint_ = read_constraint(body, "the request");
  if (!constraint_) constraint_ = otherwise;
  sampling_.seed = seed_of(custom_id_);
  if (!is_chat_) sampling_.max_tokens = 16;
  Json parameters = parse_json(json_text(body), "the request");
  for (const char* key : {"messages", "prompt", "tools"}) parameters.erase(key);
  if (preset != nullptr) parameters = preset->merged(parameters);
  read_sampling(parameters, "the request", UnknownKeys::kIgnore, sampling_);
  if (is_chat_) {
    read_chat(body, session);
  } else {
    read_completion(body, session);
  }
}

void BatchRequest::add_prompt(std::vector<std::int32_t> ids) {
  Request request;
  request.prompt = std::move(ids);
  request.sampling = sampling_;
  request.constraint = constraint_;
  request.continues_prompt = !is_chat_;
  requests_.push_back(std::move(request));
}

void BatchRequest::read_chat(const OrderedJson& body, const ModelSession& session) {
  const auto messages = body.find("messages");
  OrderedJson variables;
  variables["messages"] = template_messages(messages == body.end() ? OrderedJson() : *messages);
  variables["add_generation_prompt"] = true;
  if (const auto tools = body.find("tools"); tools != body.end()) variables["tools"] = *tools;
  const std::string text = session.text().render(std::move(variables), std::nullopt);
  add_prompt(session.tokenizer().encode(text, {.add_special = false}));
}

void BatchRequest::read_completion(const OrderedJson& body, const ModelSession& session) {
  const auto prompt = body.find("prompt");
  const auto add = [&](const OrderedJson& one) {
    if (one.is_string()) {
      add_prompt(session.tokenizer().encode(one.get_ref<const std::string&>(), {}));
    } else if (one.is_array() && !one.empty()) {
      add_prompt(read_ids(one));
    } else {
      fail(ErrorCode::kInvalidArgument, "prompt: {} is neither a text nor a list of token ids",
           json_text(one));
    }
  };
  if (prompt == body.end() || prompt->is_null()) {
    fail(ErrorCode::kInvalidArgument, "prompt is missing");
  }
  constexpr std::size_t kMostPrompts = 1024;
  const bool is_list = prompt->is_array() && !prompt->empty() && !(*prompt)[0].is_number();
  if (!is_list) return add(*prompt);
  if (prompt->size() > kMostPrompts) {
    fail(ErrorCode::kInvalidArgument, "{} prompts in one request are more than {}", prompt->size(),
         kMostPrompts);
  }
  for (const OrderedJson& one : *prompt) add(one);
}

Json BatchRequest::choice(const Answer& answer, std::int64_t index,
                          const Tokenizer& tokenizer) const {
  Json out{{"index", index}, {"finish_reason", finish_name(answer.reason)}, {"logprobs", nullptr}};
  if (is_chat_) {
    out["message"] = {{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
    if (sampling_.logprobs) out["logprobs"] = chat_logprobs(answer, tokenizer);
  } else {
    out["text"] = answer.text;
    if (sampling_.logprobs) out["logprobs"] = completion_logprobs(answer, tokenizer);
  }
  return out;
}

Json BatchRequest::response(const std::vector<std::vector<Answer>>& answers, std::int64_t number,
                            const Tokenizer& tokenizer) const {
  Json choices = Json::array();
  std::int64_t prompt = 0;
  std::int64_t cached = 0;
  std::int64_t generated = 0;
  for (const std::vector<Answer>& of_prompt : answers) {
    prompt += of_prompt.front().usage.prompt_tokens;
    cached += of_prompt.front().usage.cached_tokens;
    for (const Answer& answer : of_prompt) {
      if (answer.reason == FinishReason::kError) {
        throw Error(answer.code, answer.error);
      }
      generated += answer.usage.generated_tokens;
      choices.push_back(choice(answer, static_cast<std::int64_t>(choices.size()), tokenizer));
    }
  }
  const Json usage{{"prompt_tokens", prompt},
                   {"completion_tokens", generated},
                   {"total_tokens", prompt + generated},
                   {"prompt_tokens_details", {{"cached_tokens", cached}}}};
  const Json body{{"id", fmt::format("{}-{}", is_chat_ ? "chatcmpl" : "cmpl", number)},
                  {"object", is_chat_ ? "chat.completion" : "text_completion"},
                  {"created", static_cast<std::int64_t>(std::time(nullptr))},
                  {"model", model_},
                  {"choices", std::move(choices)},
                  {"usage", usage}};
  return {{"id", fmt::format("batch_req_{}", number)},
          {"custom_id", custom_id_},
          {"response",
           {{"status_code", 200}, {"request_id", fmt::format("req_{}", number)}, {"body", body}}},
          {"error", nullptr}};
}

Json BatchRequest::failure(const std::string& custom_id, std::int64_t number, const Error& error) {
  // A request's own texts (a grammar, a schema) break their format or a limit, too.
  const bool is_users = error.code() == ErrorCode::kInvalidArgument ||
                        error.code() == ErrorCode::kInvalidFile ||
                        error.code() == ErrorCode::kUnsupported ||
                        error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kLimit;
  const Json body{{"error",
                   {{"message", error.what()},
                    {"type", is_users ? "invalid_request_error" : "server_error"},
                    {"param", nullptr},
                    {"code", nullptr}}}};
  return {{"id", fmt::format("batch_req_{}", number)},
          {"custom_id", custom_id},
          {"response",
           {{"status_code", is_users ? 400 : 500},
            {"request_id", fmt::format("req_{}", number)},
            {"body", body}}},
          {"error", nullptr}};
}

}  // namespace bl
