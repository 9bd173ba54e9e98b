#include "batch_request.h"

#include <algorithm>
#include <array>
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

// What would make another answer than comes without it, and is not there: of OpenAI, and of vLLM.
constexpr std::array<const char*, 9> kUnsupported{"stream",
                                                  "echo",
                                                  "suffix",
                                                  "functions",
                                                  "continue_final_message",
                                                  "include_stop_str_in_output",
                                                  "bad_words",
                                                  "truncate_prompt_tokens",
                                                  "use_beam_search"};

void refuse(const OrderedJson& body, const char* key) {
  const auto value = body.find(key);
  if (value == body.end() || value->is_null() || *value == false || *value == "" ||
      *value == OrderedJson::array()) {
    return;
  }
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

// "adapters" of a body: [{"name": …, "weight": …}]. One without a weight has that of `loaded`.
std::vector<AdapterChoice> read_adapters(const OrderedJson& list,
                                         const std::vector<AdapterChoice>& loaded) {
  if (!list.is_array()) {
    fail(ErrorCode::kInvalidArgument, "adapters: {} is no list of objects with a name",
         json_text(list));
  }
  std::vector<AdapterChoice> chosen;
  for (const OrderedJson& one : list) {
    const bool named = one.is_object() && one.contains("name") && one["name"].is_string();
    const bool weighted = named && one.contains("weight") && !one["weight"].is_null();
    if (!named || (weighted && !one["weight"].is_number())) {
      fail(ErrorCode::kInvalidArgument,
           "adapters: {} should be an object with a \"name\", and a number as its \"weight\"",
           json_text(one));
    }
    AdapterChoice& choice = chosen.emplace_back(AdapterChoice{one["name"].get<std::string>(), 1});
    for (const AdapterChoice& known : loaded) {
      if (known.name == choice.name) choice.weight = known.weight;
    }
    if (weighted) choice.weight = one["weight"].get<double>();
  }
  return chosen;
}

// Of what holds unless a body says no.
bool is_on(const OrderedJson& body, const char* key) {
  const auto value = body.find(key);
  if (value == body.end()) return true;
  if (!value->is_boolean()) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, should be true or false", key, json_text(*value));
  }
  return value->get<bool>();
}

// "chat_template_kwargs", and whether the answer's beginning is written (add_generation_prompt).
OrderedJson template_variables(const OrderedJson& body) {
  OrderedJson variables = OrderedJson::object();
  if (const auto own = body.find("chat_template_kwargs"); own != body.end() && !own->is_null()) {
    if (!own->is_object()) {
      fail(ErrorCode::kInvalidArgument, "chat_template_kwargs: {} is no object", json_text(*own));
    }
    variables = *own;
  }
  variables["add_generation_prompt"] = is_on(body, "add_generation_prompt");
  return variables;
}

// Whether the model is told of the tools. Nothing makes it call one.
bool offers_tools(const OrderedJson& body) {
  const auto choice = body.find("tool_choice");
  if (choice == body.end() || choice->is_null() || *choice == "auto") return true;
  if (*choice == "none") return false;
  fail(ErrorCode::kUnsupported,
       "tool_choice is {}: a batch knows \"auto\" and \"none\"; structural_tag forces a call",
       json_text(*choice));
}

}  // namespace

BatchRequest::BatchRequest(const OrderedJson& line, const ModelSession& session,
                           const BatchDefaults& otherwise)
    : custom_id_(line.at("custom_id").get<std::string>()),
      is_chat_(line.at("url") == "/v1/chat/completions"),
      sampling_(session.defaults().sampling),
      adapters_(otherwise.adapters) {
  const OrderedJson& body = line.at("body");
  const auto model = body.find("model");
  if (model != body.end() && model->is_string()) model_ = model->get<std::string>();
  for (const char* key : kUnsupported) refuse(body, key);
  for (const char* key : {"max_tokens", "max_completion_tokens", "max_new_tokens"}) {
    const auto most = body.find(key);  // inside, 0 is "as many as there is room for"
    if (most != body.end() && *most == 0) {
      fail(ErrorCode::kInvalidArgument, "{} is 0, should be at least 1", key);
    }
  }
  skip_special_ = is_on(body, "skip_special_tokens");
  constraint_ = read_constraint(body, "the request");
  if (!constraint_) constraint_ = otherwise.constraint;
  if (const auto list = body.find("adapters"); list != body.end() && !list->is_null()) {
    adapters_ = read_adapters(*list, otherwise.adapters);
  }
  sampling_.seed = seed_of(custom_id_);
  if (!is_chat_) sampling_.max_tokens = 16;
  Json parameters = parse_json(json_text(body), "the request");
  for (const char* key : {"messages", "prompt", "tools", "adapters"}) parameters.erase(key);
  if (otherwise.preset) parameters = otherwise.preset->merged(parameters);
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
  request.adapters = adapters_;
  request.continues_prompt = !is_chat_;
  request.skip_special = skip_special_;
  requests_.push_back(std::move(request));
}

void BatchRequest::read_chat(const OrderedJson& body, const ModelSession& session) {
  const auto messages = body.find("messages");
  OrderedJson variables = template_variables(body);
  variables["messages"] = template_messages(messages == body.end() ? OrderedJson() : *messages);
  const auto tools = body.find("tools");
  if (offers_tools(body) && tools != body.end()) variables["tools"] = template_tools(*tools);
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

// As in vLLM's answers: the stop string, or the token where it was one of the request's own; the
// model's end tokens are no reason that anybody has to be told.
Json BatchRequest::stop_reason(const Answer& answer) const {
  if (answer.reason == FinishReason::kStopString) return answer.stop_string;
  if (!answer.end_token) return nullptr;
  const std::vector<std::int32_t>& own = sampling_.stop_tokens;
  const std::int32_t id = answer.end_token->id;
  return std::find(own.begin(), own.end(), id) == own.end() ? Json() : Json(id);
}

Json BatchRequest::choice(const Answer& answer, std::size_t of,
                          const LogprobsJson& logprobs) const {
  Json out{{"finish_reason", finish_name(answer.reason)},
           {"stop_reason", stop_reason(answer)},
           {"logprobs", nullptr}};
  const std::vector<std::int32_t>& prompt = requests_[of].prompt;
  if (is_chat_) {
    out["message"] = {{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
    if (sampling_.logprobs) out["logprobs"] = logprobs.chat(answer, prompt);
  } else {
    out["text"] = answer.text;
    if (sampling_.logprobs) out["logprobs"] = logprobs.completion(answer, prompt);
  }
  return out;
}

Json BatchRequest::response(const std::vector<std::vector<Answer>>& answers, std::int64_t number,
                            const LogprobsJson& logprobs) const {
  Json choices = Json::array();
  std::int64_t prompt = 0;
  std::int64_t cached = 0;
  std::int64_t generated = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Answer& first = answers[i].front();
    prompt += first.usage.prompt_tokens;
    cached += first.usage.cached_tokens;
    for (const Answer& answer : answers[i]) {
      if (answer.reason == FinishReason::kError) throw Error(answer.code, answer.error);
      generated += answer.usage.generated_tokens;
      Json& out = choices.emplace_back(choice(answer, i, logprobs));
      out["index"] = choices.size() - 1;
      // They are the prompt's: all of its choices would say the same.
      if (sampling_.prompt_logprobs < 0 || is_chat_) continue;
      out["prompt_logprobs"] = &answer == &first ? logprobs.prompt(first) : Json();
    }
  }
  const Json usage{{"prompt_tokens", prompt},
                   {"completion_tokens", generated},
                   {"total_tokens", prompt + generated},
                   {"prompt_tokens_details", {{"cached_tokens", cached}}}};
  Json body{{"id", fmt::format("{}-{}", is_chat_ ? "chatcmpl" : "cmpl", number)},
            {"object", is_chat_ ? "chat.completion" : "text_completion"},
            {"created", static_cast<std::int64_t>(std::time(nullptr))},
            {"model", model_},
            {"choices", std::move(choices)},
            {"usage", usage}};
  if (is_chat_ && sampling_.prompt_logprobs >= 0) {
    body["prompt_logprobs"] = logprobs.prompt(answers.front().front());
  }
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
