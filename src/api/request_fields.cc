#include "api/request_fields.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "api/request_error.h"
#include "base/json.h"
#include "sample/sampling_json.h"

namespace bl::openai {
namespace {

constexpr std::size_t kMostSalt = 1024;
constexpr const char* kWhat = "the request";

// Fields of OpenAI's and vLLM's requests that would change the answer and are not implemented.
constexpr std::array kUnsupported{"include_stop_str_in_output", "bad_words",
                                  "truncate_prompt_tokens", "use_beam_search"};

// Fields that ask for a form of the answer (constraint_spec.h).
constexpr std::array kForms{"response_format",
                            "json_schema",
                            "guided_json",
                            "regex_pattern",
                            "guided_regex",
                            "regex",
                            "grammar_string",
                            "grammar",
                            "guided_grammar",
                            "ebnf",
                            "structural_tag",
                            "guided_choice",
                            "guided_choice_ignore_case",
                            "guided_prefix",
                            "constraints",
                            "trigger_token",
                            "prefer_eos"};

// Other fields that every request may have. The second half has no effect on an answer.
constexpr std::array kCommonFields{
    "model",
    "stream",
    "stream_options",
    "structured_outputs",
    "skip_special_tokens",
    "adapters",
    "cache_salt",
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
};

// Whether clients write this value for a field that they leave out.
bool is_left_out(const OrderedJson& value) {
  return value.is_null() || value == false || value == 0 || value == "" ||
         (value.is_array() && value.empty());
}

// Whether the body asks for no token at all. SamplingParams understand 0 as "no limit", which no
// client means by it.
bool asks_for_nothing(const OrderedJson& body) {
  for (const char* key : {"max_tokens", "max_completion_tokens", "max_new_tokens", "n_predict"}) {
    const OrderedJson* most = given(body, key);
    if (most != nullptr && most->is_number() && *most == 0) return true;
  }
  return false;
}

// vLLM's object with the form of the answer; `forms` gets its members under the names that they
// have by themselves.
void add_structured_outputs(const OrderedJson& body, OrderedJson& forms) {
  constexpr std::array<std::pair<std::string_view, const char*>, 5> kNames{
      {{"json", "guided_json"},
       {"regex", "guided_regex"},
       {"choice", "guided_choice"},
       {"grammar", "guided_grammar"},
       {"structural_tag", "structural_tag"}}};
  const OrderedJson* outputs = given(body, "structured_outputs");
  if (outputs == nullptr) return;
  if (!outputs->is_object()) {
    fail_at(ErrorCode::kInvalidArgument, "structured_outputs",
            "structured_outputs is {}, should be an object", json_shown(*outputs));
  }
  for (const auto& [key, value] : outputs->items()) {
    if (is_left_out(value)) continue;
    const auto at = std::find_if(
        kNames.begin(), kNames.end(),
        [&, name = std::string_view(key)](const auto& one) { return one.first == name; });
    if (at != kNames.end()) {
      forms[at->second] = value;
    } else if (key == "json_object") {
      forms["response_format"] = {{"type", "json_object"}};
    } else {
      fail_at(ErrorCode::kUnsupported, "structured_outputs." + key,
              "structured_outputs.{} is not supported here; leave it out", key);
    }
  }
}

// Clients of text-generation-webui and TabbyAPI send an empty grammar with every request.
ConstraintSpec read_form(const OrderedJson& body, const ConstraintSpec& otherwise) {
  OrderedJson forms = OrderedJson::object();
  for (const char* key : kForms) {
    const auto value = body.find(key);
    const bool is_id = std::string_view(key) == "trigger_token";  // 0 is one
    if (value != body.end() && (is_id || !is_left_out(*value))) forms[key] = *value;
  }
  add_structured_outputs(body, forms);
  ConstraintSpec spec;
  read_or_blame(forms, [&](const OrderedJson& some) {
    spec = read_constraint(some, kWhat);
    validate(spec);
  });
  return spec ? spec : otherwise;
}

AdapterChoice read_adapter(const OrderedJson& one, const std::string& at,
                           const std::vector<AdapterChoice>& loaded) {
  const OrderedJson* name = one.is_object() ? given(one, "name") : nullptr;
  const OrderedJson* weight = one.is_object() ? given(one, "weight") : nullptr;
  if (name == nullptr || !name->is_string() || (weight != nullptr && !weight->is_number())) {
    fail_at(ErrorCode::kInvalidArgument, at,
            "adapters: {} should be an object with a \"name\", and a number as its \"weight\"",
            json_shown(one));
  }
  AdapterChoice choice{name->get<std::string>(), 1};
  for (const AdapterChoice& known : loaded) {
    if (known.name == choice.name) choice.weight = known.weight;
  }
  if (weight != nullptr) choice.weight = weight->get<double>();
  return choice;
}

// "adapters": [{"name": …, "weight": …}]. An empty list asks for the model without adapters.
std::vector<AdapterChoice> read_adapters(const OrderedJson& body,
                                         const std::vector<AdapterChoice>& loaded) {
  const OrderedJson* list = given(body, "adapters");
  if (list == nullptr) return loaded;
  if (!list->is_array()) {
    fail_at(ErrorCode::kInvalidArgument, "adapters",
            "adapters: {} should be a list of objects with a name", json_shown(*list));
  }
  std::vector<AdapterChoice> chosen;
  for (std::size_t i = 0; i < list->size(); ++i) {
    chosen.push_back(read_adapter((*list)[i], fmt::format("adapters[{}]", i), loaded));
  }
  return chosen;
}

std::string read_cache_salt(const OrderedJson& body) {
  const OrderedJson* salt = given(body, "cache_salt");
  if (salt == nullptr) return {};
  const bool is_text = salt->is_string();
  if (!is_text || salt->get_ref<const std::string&>().size() > kMostSalt) {
    fail_at(ErrorCode::kInvalidArgument, "cache_salt",
            "cache_salt should be a text of at most {} bytes", kMostSalt);
  }
  return salt->get<std::string>();
}

SamplingParams read_parameters(const OrderedJson& body, const std::optional<SamplingPreset>& preset,
                               const SamplingParams& otherwise) {
  Json parameters = Json::object();
  for (const auto& [key, value] : body.items()) {
    if (is_sampling_key(key)) parameters[key] = value;
  }
  if (preset) parameters = preset->merged(parameters);
  SamplingParams sampling;
  read_or_blame(parameters, [&](const Json& some) {
    sampling = otherwise;
    read_sampling(some, kWhat, UnknownKeys::kIgnore, sampling);
    validate(sampling);
  });
  return sampling;
}

}  // namespace

void refuse_fields(const OrderedJson& body, std::span<const char* const> names) {
  for (const char* key : names) {
    const OrderedJson* value = given(body, key);
    const bool is_empty = value != nullptr && value->is_object() && value->empty();
    if (value != nullptr && !is_left_out(*value) && !is_empty)
      fail_at(ErrorCode::kUnsupported, key, "{} is not supported here; leave it out", key);
  }
}

const OrderedJson* given(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::vector<std::string> unknown_fields(const OrderedJson& body, std::span<const char* const> own) {
  const auto is_among = [](std::string_view key, std::span<const char* const> names) {
    return std::find(names.begin(), names.end(), key) != names.end();
  };
  std::vector<std::string> unknown;
  for (const auto& [key, value] : body.items()) {
    const bool is_known = value.is_null() || is_sampling_key(key) || is_among(key, own) ||
                          is_among(key, kCommonFields) || is_among(key, kForms) ||
                          is_among(key, kUnsupported);
    if (!is_known) unknown.push_back(key);
  }
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

bool read_flag(const OrderedJson& object, const std::string& path, bool otherwise) {
  const std::string key = path.substr(path.rfind('.') + 1);  // the whole path where it has no dot
  const OrderedJson* value = given(object, key.c_str());
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) {
    fail_at(ErrorCode::kInvalidArgument, path, "{} is {}, should be true or false", path,
            json_shown(*value));
  }
  return value->get<bool>();
}

RequestFields read_request_fields(const OrderedJson& body, const RequestDefaults& otherwise,
                                  const SamplingParams& sampling) {
  refuse_fields(body, kUnsupported);
  RequestFields fields;
  fields.prompt_only = asks_for_nothing(body);
  if (const OrderedJson* model = given(body, "model"); model != nullptr && model->is_string()) {
    fields.model = model->get<std::string>();
  }
  fields.stream = read_flag(body, "stream", false);
  if (const OrderedJson* options = given(body, "stream_options"); fields.stream && options) {
    if (!options->is_object()) {
      fail_at(ErrorCode::kInvalidArgument, "stream_options",
              "stream_options is {}, should be an object", json_shown(*options));
    }
    fields.include_usage = read_flag(*options, "stream_options.include_usage", false);
  }
  fields.skip_special = read_flag(body, "skip_special_tokens", true);
  fields.cache_salt = read_cache_salt(body);
  fields.constraint = read_form(body, otherwise.constraint);
  fields.adapters = read_adapters(body, otherwise.adapters);
  fields.sampling = read_parameters(body, otherwise.preset, sampling);
  if (fields.stream && fields.sampling.prompt_logprobs >= 0) {
    fail_at(ErrorCode::kUnsupported, "prompt_logprobs",
            "prompt_logprobs are no part of a stream; ask for them without \"stream\"");
  }
  return fields;
}

Request RequestFields::engine_request(std::vector<std::int32_t> prompt) const {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling = sampling;
  request.constraint = constraint;
  request.adapters = adapters;
  request.skip_special = skip_special;
  request.cache_salt = cache_salt;
  request.prompt_only = prompt_only;
  return request;
}

}  // namespace bl::openai
