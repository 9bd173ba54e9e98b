#include "engine/generation_defaults.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "sample/sampling_json.h"

namespace bl {
namespace {

// A visitor of SamplingParams that reads its fields from generation_config.json.
struct JsonFieldReader {
  const Json& from;
  std::string_view what;

  // Finds a field under its own name, or under another that JSON files use for it (typical_p).
  const Json* find(const OptionField& about) const {
    const std::string name = option_key(about);
    for (const auto& [key, value] : from.items()) {
      if (!value.is_null() && sampling_key(key) == name) return &value;
    }
    return nullptr;
  }
  void operator()(double& field, const OptionField& about) const {
    const Json* value = find(about);
    if (value == nullptr) return;
    if (!value->is_number()) report(about, *value, "a number");
    field = value->get<double>();
  }
  void operator()(std::int64_t& field, const OptionField& about) const {
    const Json* value = find(about);
    if (value == nullptr) return;
    if (!value->is_number_integer()) report(about, *value, "a whole number");
    field = value->get<std::int64_t>();
  }
  void operator()(bool& field, const OptionField& about) const {
    const Json* value = find(about);
    if (value == nullptr) return;
    if (!value->is_boolean()) report(about, *value, "true or false");
    field = value->get<bool>();
  }
  // A model has no say in the seed.
  void operator()(std::uint64_t&, const OptionField&) const {}

  [[noreturn]] void report(const OptionField& about, const Json& value, const char* right) const {
    fail(ErrorCode::kInvalidFile, "{}: {} is {}, should be {}", what, option_key(about),
         json_text(value), right);
  }
};

void read_values(const Json& generation_config, std::string_view what, SamplingParams& params) {
  params.visit(JsonFieldReader{generation_config, what});
  const auto sample = generation_config.find("do_sample");
  if (sample != generation_config.end() && sample->is_boolean() && !sample->get<bool>()) {
    params.temperature = 0;
  }
  // Some checkpoints switch top-k off with a negative value.
  params.top_k = std::max<std::int64_t>(params.top_k, 0);
  validate(params);
}

void add_end_tokens(const Json& from, std::string_view what, std::vector<std::int32_t>& ids) {
  if (!from.is_object()) return;
  const auto at = from.find("eos_token_id");
  if (at == from.end() || at->is_null()) return;
  const Json list = at->is_array() ? *at : Json::array({*at});
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      fail(ErrorCode::kInvalidFile,
           "{}: eos_token_id is {}, should be a token id or a list of them", what, at->dump());
    }
    ids.push_back(id.get<std::int32_t>());
  }
}

}  // namespace

GenerationDefaults read_generation_defaults(const Json& generation_config, const Json& config,
                                            std::string_view what) {
  GenerationDefaults defaults;
  if (generation_config.is_object()) {
    read_values(generation_config, what, defaults.sampling);
    read_values(generation_config, what, defaults.request);
  } else if (!generation_config.is_null()) {
    fail(ErrorCode::kInvalidFile, "{}: not a JSON object", what);
  }
  add_end_tokens(generation_config, what, defaults.end_tokens);
  add_end_tokens(config, "config.json", defaults.end_tokens);
  if (config.is_object() && config.contains("text_config")) {
    add_end_tokens(config["text_config"], "config.json: text_config", defaults.end_tokens);
  }
  std::vector<std::int32_t>& ids = defaults.end_tokens;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return defaults;
}

}  // namespace bl
