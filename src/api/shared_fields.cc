#include "api/shared_fields.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "sample/sampling_json.h"

namespace bl::openai {
namespace {

constexpr std::array<std::string_view, 6> kOtherAnswers{
    "n", "best_of", "logprobs", "top_logprobs", "prompt_logprobs", "logprobs_after"};
constexpr std::array<std::string_view, 5> kOwn{"adapters", "cache_salt", "chat_template_kwargs",
                                               "template_vars", "skip_special_tokens"};

}  // namespace

bool is_shared_field(std::string_view name) {
  const auto is_among = [](std::string_view one, const auto& names) {
    return std::find(names.begin(), names.end(), one) != names.end();
  };
  if (is_among(name, kOwn)) return true;
  return is_sampling_key(name) && !is_among(sampling_key(name), kOtherAnswers);
}

void copy_shared_fields(const OrderedJson& from, OrderedJson& chat) {
  for (const auto& [key, value] : from.items()) {
    if (!value.is_null() && is_shared_field(key)) chat[key] = value;
  }
}

}  // namespace bl::openai
