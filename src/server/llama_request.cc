#include "server/llama_request.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "api/request_error.h"
#include "engine/engine.h"
#include "server/native_request.h"
#include "server/server_state.h"
#include "text/tokenizer.h"

namespace bl::server {
namespace {

using openai::fail_at;
using openai::given;

constexpr std::int64_t kRepeatLastN = 64;
constexpr std::size_t kMostPrompts = 1024;
constexpr double kSecondsInMs = 1e-3;

struct SamplerName {
  std::string_view theirs;
  std::string_view letter;  // in a text instead of a list
  std::string_view ours;    // empty: it runs before the stages that can be ordered
};
constexpr std::array kSamplers{SamplerName{"temperature", "t", "temperature"},
                               SamplerName{"top_k", "k", "top-k"},
                               SamplerName{"top_p", "p", "top-p"},
                               SamplerName{"min_p", "m", "min-p"},
                               SamplerName{"typ_p", "y", "typical"},
                               SamplerName{"typical_p", "y", "typical"},
                               SamplerName{"xtc", "x", "xtc"},
                               SamplerName{"adaptive_p", "a", "adaptive-p"},
                               SamplerName{"dry", "d", ""},
                               SamplerName{"penalties", "e", ""},
                               SamplerName{"top_n_sigma", "s", ""},
                               SamplerName{"infill", "i", ""}};

// Unknown samplers are skipped, as llama-server does.
void read_samplers(OrderedJson& body) {
  const OrderedJson* samplers = given(body, "samplers");
  if (samplers == nullptr) return;
  std::vector<std::string> names;
  const auto add = [&](auto is_meant) {
    const auto found = std::find_if(kSamplers.begin(), kSamplers.end(), is_meant);
    if (found == kSamplers.end() || found->ours.empty()) return;
    if (std::find(names.begin(), names.end(), found->ours) != names.end()) return;
    names.emplace_back(found->ours);
  };
  if (samplers->is_string()) {
    for (const char letter : samplers->get<std::string>()) {
      add([&](const SamplerName& name) { return name.letter == std::string_view(&letter, 1); });
    }
  } else if (samplers->is_array()) {
    for (const OrderedJson& one : *samplers) {
      add([&](const SamplerName& name) { return one == std::string(name.theirs); });
    }
  } else {
    fail_at(ErrorCode::kInvalidArgument, "samplers", "samplers is {}, should be a list of names",
            json_shown(*samplers));
  }
  body.erase("samplers");
  if (!names.empty()) set_sampler_order(body, names);
}

void add_bias(const OrderedJson& of, const OrderedJson& bias, const Tokenizer& tokenizer,
              OrderedJson& list) {
  if (!of.is_string()) {
    list.push_back({of, bias});
    return;
  }
  const auto text = of.get<std::string>();
  const bool is_id = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (is_id && text.size() < 10) {
    list.push_back({std::stoi(text), bias});
    return;
  }
  for (const std::int32_t id : tokenizer.encode(text, {.add_special = false})) {
    list.push_back({id, bias});
  }
}

// Here a bias may also stand beside a text, and then holds for each of its tokens.
void read_bias(OrderedJson& body, const Tokenizer& tokenizer) {
  const OrderedJson* biases = given(body, "logit_bias");
  if (biases == nullptr || !biases->is_structured()) return;
  OrderedJson list = OrderedJson::array();
  if (biases->is_object()) {
    for (const auto& [of, bias] : biases->items()) {
      add_bias(OrderedJson(of), bias, tokenizer, list);
    }
  } else {
    for (const OrderedJson& pair : *biases) {
      if (!pair.is_array() || pair.size() != 2) {
        fail_at(ErrorCode::kInvalidArgument, "logit_bias",
                "logit_bias: {} should be a pair [token id or text, number or false]",
                json_shown(pair));
      }
      add_bias(pair[0], pair[1], tokenizer, list);
    }
  }
  body["logit_bias"] = std::move(list);
}

// repeat_last_n counts for the three penalties; 0 switches them off, −1 is the whole context.
void read_penalties(OrderedJson& body) {
  rename_member(body, "repeat_penalty", "repetition_penalty");
  const std::int64_t last = read_number(body, "repeat_last_n", kRepeatLastN);
  if (last < -1) {
    fail_at(ErrorCode::kInvalidArgument, "repeat_last_n",
            "repeat_last_n is {}, should be -1 (the whole context), 0 (off) or a number of tokens",
            last);
  }
  body.erase("repeat_last_n");
  if (!body.contains("penalty_range")) body["penalty_range"] = last;
  if (read_number(body, "dry_penalty_last_n", -1) == 0) body["dry_multiplier"] = 0;
}

std::int64_t read_n_predict(OrderedJson& body) {
  for (const char* other : {"max_tokens", "max_completion_tokens"}) {
    if (!body.contains("n_predict")) rename_member(body, other, "n_predict");
    body.erase(other);
  }
  const std::int64_t most = std::max<std::int64_t>(read_number(body, "n_predict", -1), -1);
  body.erase("n_predict");
  if (most != -1) body["max_tokens"] = std::max<std::int64_t>(most, 1);
  return most;
}

std::vector<std::string> read_response_fields(const OrderedJson& body) {
  std::vector<std::string> fields;
  const OrderedJson* list = given(body, "response_fields");
  if (list == nullptr) return fields;
  for (const OrderedJson& one : *list) {
    if (!list->is_array() || !one.is_string()) {
      fail_at(ErrorCode::kInvalidArgument, "response_fields",
              "response_fields is {}, should be a list of texts", json_shown(*list));
    }
    fields.push_back(one.get<std::string>());
  }
  return fields;
}

bool is_id(const OrderedJson& value) {
  return value.is_number_integer() && value >= 0 &&
         value <= std::numeric_limits<std::int32_t>::max();
}

// A text, or a list of ids and texts that make up one prompt.
std::vector<std::int32_t> read_prompt(const OrderedJson& prompt, const Tokenizer& tokenizer) {
  if (prompt.is_string()) return tokenizer.encode(prompt.get<std::string>());
  if (prompt.is_object() && prompt.contains("prompt_string")) {
    if (const OrderedJson* media = given(prompt, "multimodal_data"); media && !media->empty()) {
      fail_at(ErrorCode::kUnsupported, "prompt.multimodal_data",
              "this model reads texts only; leave multimodal_data out");
    }
    return read_prompt(prompt["prompt_string"], tokenizer);
  }
  if (!prompt.is_array() || prompt.empty()) {
    fail_at(ErrorCode::kInvalidArgument, "prompt",
            "prompt: {} is neither a text nor a list of token ids and texts", json_shown(prompt));
  }
  std::vector<std::int32_t> ids;
  for (const OrderedJson& part : prompt) {
    if (is_id(part)) {
      ids.push_back(part.get<std::int32_t>());
    } else if (part.is_string()) {
      const bool is_first = &part == &prompt.front();
      const auto more = tokenizer.encode(part.get<std::string>(), {.add_special = is_first});
      ids.insert(ids.end(), more.begin(), more.end());
    } else {
      fail_at(ErrorCode::kInvalidArgument, "prompt", "prompt: {} is neither a token id nor a text",
              json_shown(part));
    }
  }
  return ids;
}

}  // namespace

LlamaRequest LlamaRequest::read(const OrderedJson& given_body, std::shared_ptr<ServedModel> model) {
  LlamaRequest request;
  request.model = std::move(model);
  const SamplingParams sampling = native_sampling(*request.model);
  OrderedJson body = given_body;
  body.erase("prompt");
  request.n_predict = read_n_predict(body);
  request.n_probs = read_number(body, "n_probs", 0);
  request.post_sampling_probs = openai::read_flag(body, "post_sampling_probs", false);
  request.return_tokens = openai::read_flag(body, "return_tokens", false);
  request.timings_per_token = openai::read_flag(body, "timings_per_token", false);
  request.return_progress = openai::read_flag(body, "return_progress", false);
  request.cache_prompt = openai::read_flag(body, "cache_prompt", true);
  request.seconds =
      static_cast<double>(std::max<std::int64_t>(read_number(body, "t_max_predict_ms", 0), 0)) *
      kSecondsInMs;
  request.response_fields = read_response_fields(body);
  body.erase("logprobs");
  if (request.n_probs > 0) {
    body["logprobs"] = true;
    body["top_logprobs"] = request.n_probs;
    body["logprobs_after"] = request.post_sampling_probs;
  }
  rename_member(body, "n_cmpl", "n");
  spread_temperature(body, sampling);
  read_samplers(body);
  read_penalties(body);
  read_bias(body, request.model->engine().tokenizer());
  request.fields = openai::read_request_fields(body, request.model->otherwise(), sampling);
  return request;
}

void LlamaRequest::read_prompts(const OrderedJson& body) {
  const OrderedJson* prompt = given(body, "prompt");
  if (prompt == nullptr) fail_at(ErrorCode::kInvalidArgument, "prompt", "prompt is missing");
  const Tokenizer& tokenizer = model->engine().tokenizer();
  // A list without ids is a list of prompts; with ids it is one prompt of ids and texts.
  const bool has_ids = prompt->is_array() && std::any_of(prompt->begin(), prompt->end(), is_id);
  is_list = prompt->is_array() && !prompt->empty() && !has_ids;
  if (!is_list) {
    prompts.push_back(read_prompt(*prompt, tokenizer));
    return;
  }
  if (prompt->size() > kMostPrompts) {
    fail_at(ErrorCode::kInvalidArgument, "prompt", "{} prompts in one request are more than {}",
            prompt->size(), kMostPrompts);
  }
  for (const OrderedJson& one : *prompt) prompts.push_back(read_prompt(one, tokenizer));
}

std::vector<Request> LlamaRequest::engine_requests() const {
  std::vector<Request> requests;
  for (const std::vector<std::int32_t>& prompt : prompts) {
    check_prompt_fits(prompt.size(), *model);
    Request request = fields.engine_request(prompt);
    request.deadline = seconds;
    request.tell_start = return_progress;
    // Nobody else has this salt, so that nothing of the cache is found.
    if (!cache_prompt) request.cache_salt = ServerState::new_id("uncached-");
    requests.push_back(std::move(request));
  }
  return requests;
}

OrderedJson LlamaRequest::generation_settings() const {
  OrderedJson settings = llama_settings(fields.sampling);
  settings["n_predict"] = n_predict;
  settings["max_tokens"] = n_predict;
  settings["n_probs"] = n_probs;
  settings["stream"] = fields.stream;
  settings["post_sampling_probs"] = post_sampling_probs;
  settings["timings_per_token"] = timings_per_token;
  if (fields.sampling.ban_end_tokens) {
    for (const std::int32_t id : model->engine().session().defaults().end_tokens) {
      settings["logit_bias"].push_back({{"token", id}, {"bias", nullptr}});  // JSON has no −∞
    }
  }
  settings["grammar"] =
      fields.constraint.kind == ConstraintSpec::Kind::kGrammar ? fields.constraint.text : "";
  return settings;
}

OrderedJson llama_settings(const SamplingParams& sampling) {
  OrderedJson biases = OrderedJson::array();
  for (const TokenBias& each : sampling.logit_bias) {
    biases.push_back({{"token", each.id}, {"bias", std::max(each.bias, -1e9)}});
  }
  const double range =
      sampling.dynamic_temperature() ? (sampling.max_temp - sampling.min_temp) / 2 : 0;
  const std::int64_t most = sampling.max_tokens == 0 ? -1 : sampling.max_tokens;
  return {{"seed", sampling.seed},
          {"temperature", sampling.temperature},
          {"dynatemp_range", range},
          {"dynatemp_exponent", sampling.temp_exponent},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"top_n_sigma", sampling.top_n_sigma > 0 ? sampling.top_n_sigma : -1.0},
          {"xtc_probability", sampling.xtc_probability},
          {"xtc_threshold", sampling.xtc_threshold},
          {"typical_p", sampling.typical},
          {"repeat_last_n", sampling.penalty_range},
          {"repeat_penalty", sampling.repetition_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"dry_multiplier", sampling.dry_multiplier},
          {"dry_base", sampling.dry_base},
          {"dry_allowed_length", sampling.dry_allowed_length},
          {"dry_penalty_last_n", sampling.dry_range == 0 ? -1 : sampling.dry_range},
          {"dry_sequence_breakers", sampling.dry_sequence_breakers},
          {"mirostat", sampling.mirostat_mode},
          {"mirostat_tau", sampling.mirostat_tau},
          {"mirostat_eta", sampling.mirostat_eta},
          {"stop", sampling.stop_strings},
          {"max_tokens", most},
          {"n_predict", most},
          {"n_keep", 0},
          {"n_discard", 0},
          {"ignore_eos", sampling.ban_end_tokens},
          {"stream", false},
          {"logit_bias", std::move(biases)},
          {"n_probs", sampling.top_logprobs},
          {"min_keep", 0},
          {"samplers", sampling.sampler_order},
          {"timings_per_token", false},
          {"post_sampling_probs", false},
          {"lora", OrderedJson::array()}};
}

}  // namespace bl::server
