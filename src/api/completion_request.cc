#include "api/completion_request.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "api/fill_in_middle.h"
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

// What stands before any text, for a prompt that has no tokens of its own.
std::vector<std::int32_t> begin_of_text(const Tokenizer& tokenizer, const std::string& at) {
  const std::optional<int> begin = tokenizer.bos_id() ? tokenizer.bos_id() : tokenizer.eos_id();
  if (begin) return {*begin};
  fail_at(ErrorCode::kInvalidArgument, at,
          "the prompt is empty, and the model has no token for the beginning of a text");
}

}  // namespace

CompletionRequest CompletionRequest::read(const OrderedJson& body, const RequestDefaults& otherwise,
                                          SamplingParams sampling) {
  sampling.max_tokens = kMaxTokens;
  CompletionRequest request{read_request_fields(body, otherwise, sampling)};
  request.unknown = unknown_fields(body, std::array{"prompt", "echo", "suffix"});
  request.prompts = read_prompts(body);
  request.echo = read_flag(body, "echo", false);
  if (const OrderedJson* suffix = given(body, "suffix")) {
    if (!suffix->is_string()) {
      fail_at(ErrorCode::kInvalidArgument, "suffix", "suffix is {}, should be a text",
              json_shown(*suffix));
    }
    if (*suffix != "") request.suffix = suffix->get<std::string>();
  }
  // The prompt's part of the log-probabilities.
  SamplingParams& own = request.sampling;
  request.tells_prompt_logprobs = own.prompt_logprobs >= 0;
  if (request.echo && own.logprobs) {
    own.prompt_logprobs = std::max(own.prompt_logprobs, own.top_logprobs);
  }
  return request;
}

std::vector<Request> CompletionRequest::engine_requests(const Tokenizer& tokenizer) const {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string at = prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", i);
    std::vector<std::int32_t> ids;
    if (suffix) {
      ids = fill_in_middle(tokenizer, prompt_text(i, tokenizer), *suffix);
    } else if (const auto* text = std::get_if<std::string>(&prompts[i])) {
      ids = tokenizer.encode(*text);
    } else {
      ids = std::get<std::vector<std::int32_t>>(prompts[i]);
    }
    if (ids.empty()) ids = begin_of_text(tokenizer, at);
    requests.push_back(engine_request(std::move(ids)));
  }
  return requests;
}

std::string CompletionRequest::prompt_text(std::size_t index, const Tokenizer& tokenizer) const {
  if (const auto* text = std::get_if<std::string>(&prompts[index])) return *text;
  return tokenizer.decode(std::get<std::vector<std::int32_t>>(prompts[index]), skip_special);
}

}  // namespace bl::openai
