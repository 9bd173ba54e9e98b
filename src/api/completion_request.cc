#include "api/completion_request.h"

#include <array>
#include <limits>
#include <utility>

#include "api/request_error.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace bl::openai {
namespace {

constexpr std::int64_t kMaxTokens = 16;  // of an answer, as in OpenAI's API
constexpr std::size_t kMostPrompts = 1024;

std::vector<std::int32_t> read_ids(const OrderedJson& list, const std::string& at) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const OrderedJson& id = list[i];
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
      fail_at(ErrorCode::kInvalidArgument, fmt::format("{}[{}]", at, i),
              "prompt: {} is no token id", json_shown(id));
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

CompletionRequest::Prompt read_prompt(const OrderedJson& one, const std::string& at) {
  if (one.is_string()) return one.get<std::string>();
  if (one.is_array() && !one.empty()) return read_ids(one, at);
  fail_at(ErrorCode::kInvalidArgument, at, "prompt: {} is neither a text nor a list of token ids",
          json_shown(one));
}

std::vector<CompletionRequest::Prompt> read_prompts(const OrderedJson& body) {
  const OrderedJson* prompt = given(body, "prompt");
  if (prompt == nullptr) fail_at(ErrorCode::kInvalidArgument, "prompt", "prompt is missing");
  const bool is_list = prompt->is_array() && !prompt->empty() && !(*prompt)[0].is_number();
  if (!is_list) return {read_prompt(*prompt, "prompt")};
  if (prompt->size() > kMostPrompts) {
    fail_at(ErrorCode::kInvalidArgument, "prompt", "{} prompts in one request are more than {}",
            prompt->size(), kMostPrompts);
  }
  std::vector<CompletionRequest::Prompt> prompts;
  for (std::size_t i = 0; i < prompt->size(); ++i) {
    prompts.push_back(read_prompt((*prompt)[i], fmt::format("prompt[{}]", i)));
  }
  return prompts;
}

}  // namespace

CompletionRequest CompletionRequest::read(const OrderedJson& body, const RequestDefaults& otherwise,
                                          SamplingParams sampling) {
  sampling.max_tokens = kMaxTokens;
  CompletionRequest request{read_request_fields(body, otherwise, sampling)};
  request.unknown = unknown_fields(body, std::array{"prompt"});
  request.prompts = read_prompts(body);
  return request;
}

std::vector<Request> CompletionRequest::engine_requests(const Tokenizer& tokenizer) const {
  std::vector<Request> requests;
  for (const Prompt& prompt : prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    requests.push_back(engine_request(
        text != nullptr ? tokenizer.encode(*text) : std::get<std::vector<std::int32_t>>(prompt)));
  }
  return requests;
}

}  // namespace bl::openai
