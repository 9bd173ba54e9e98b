#include "engine/request_intake.h"

#include <algorithm>

#include "base/error.h"
#include "ops/kv_layout.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

void need_tokenizer(bool asked, const char* name) {
  if (!asked) return;
  fail(ErrorCode::kInvalidArgument, "{}: needs a tokenizer, and this engine has none", name);
}

// How long a guided answer's sequence may become, at most `longest` tokens, where the second
// sequence is `beyond` tokens longer and there are `pages` pages for both.
std::int64_t longest_of_pair(std::int64_t longest, std::int64_t beyond, std::int64_t pages) {
  const auto with_a_page_less = [](std::int64_t tokens) {
    return (pages_for(tokens) - 1) * std::int64_t{kPageSlots};
  };
  while (pages_for(longest) + pages_for(longest + beyond) > pages) {
    longest = std::max(with_a_page_less(longest), with_a_page_less(longest + beyond) - beyond);
  }
  return longest;
}

}  // namespace

RequestIntake::RequestIntake(const Tokenizer* tokenizer, const Limits& limits)
    : tokenizer_(tokenizer), limits_(limits) {
  if (tokenizer_ == nullptr) return;
  tables_.emplace(*tokenizer_, limits_.facts.vocab);
  constraints_ = std::make_unique<ConstraintCompiler>(*tokenizer_);
}

void RequestIntake::complete(OpenRequest& open) {
  Request& request = open.request;
  SamplingParams& params = request.sampling;
  open.end_tokens = limits_.end_tokens;
  if (tokenizer_ == nullptr) {
    need_tokenizer(!params.stop_strings.empty(), "stop");
    need_tokenizer(!params.banned_strings.empty(), "banned_strings");
    need_tokenizer(!params.banned_pieces.empty(), "a text in banned_tokens");
    need_tokenizer(!params.allowed_pieces.empty(), "a text in allowed_tokens");
    need_tokenizer(params.token_healing, "token_healing");
    need_tokenizer(!!request.constraint, "a constraint");
  } else {
    complete_lists(params);
    open.rules = AnswerRules(params);
    if (params.token_healing) {
      open.healed =
          HealedPrompt::make(request, *tokenizer_, tables_->pieces(), limits_.facts.vocab);
    }
  }
  prepare(params);
  if (params.cfg_scale != 1) add_negative(open);
  if (request.constraint) add_constraints(open);
}

void RequestIntake::complete_lists(SamplingParams& params) {
  const bool has_pieces = !params.banned_pieces.empty() || !params.allowed_pieces.empty();
  tables_->complete(params);
  if (has_pieces) validate(params, limits_.facts.vocab);  // the ids that the pieces became
}

void RequestIntake::complete(SamplingParams& params) {
  if (tables_) complete_lists(params);
  prepare(params);
}

void RequestIntake::add_constraints(OpenRequest& open) {
  const Request& request = open.request;
  // The text that a healed token adds behind the prompt would not be constrained.
  if (request.sampling.token_healing) {
    fail(ErrorCode::kUnsupported, "token_healing and a constraint exclude each other");
  }
  // A row may be wider than the vocabulary; its padding is never chosen.
  const std::int64_t tokens = std::min<std::int64_t>(limits_.facts.vocab, tokenizer_->vocab_size());
  const auto check_trigger = [tokens](const ConstraintSpec& spec) {
    if (spec.trigger_token < tokens) return;
    fail(ErrorCode::kInvalidArgument, "trigger_token is {}, the model's tokens are 0 … {}",
         spec.trigger_token, tokens - 1);
  };
  check_trigger(request.constraint);
  for (const ConstraintSpec& part : request.constraint.also) check_trigger(part);
  const CompiledConstraint compiled = constraints_->compile(request.constraint);
  std::vector<std::int32_t> ends = request.sampling.stop_tokens;
  if (!request.ignore_end_tokens) {
    ends.insert(ends.end(), limits_.end_tokens.begin(), limits_.end_tokens.end());
  }
  for (std::int32_t i = 0; i < open.choices(); ++i) {
    open.constraints.push_back(std::make_unique<Constraint>(compiled, ends));
  }
}

// Without a negative prompt, guidance steers away from what follows the prompt's last token alone.
void RequestIntake::add_negative(OpenRequest& open) const {
  const Request& request = open.request;
  std::vector<std::int32_t>& ids = open.negative;
  ids = request.negative_prompt;
  if (ids.empty() && !request.sampling.negative_prompt.empty()) {
    need_tokenizer(tokenizer_ == nullptr, "negative_prompt");
    ids = tokenizer_->encode(request.sampling.negative_prompt, {});
  }
  if (ids.empty()) ids = {request.prompt.back()};
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < limits_.facts.ids) continue;
    fail(ErrorCode::kInvalidArgument, "negative_prompt has token {}, the model's ids are 0 … {}",
         id, limits_.facts.ids - 1);
  }
  if (limits_.running < 2) {
    fail(ErrorCode::kInvalidArgument,
         "cfg_scale is {}, which takes two sequences, and this engine runs one at a time",
         request.sampling.cfg_scale);
  }
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const std::int64_t beyond =
      tokens - static_cast<std::int64_t>(open.healed ? open.healed->kept() : request.prompt.size());
  if (tokens >= limits_.longest) {
    fail(ErrorCode::kInvalidArgument, "negative_prompt has {} tokens and the context holds {}",
         tokens, limits_.longest);
  }
  const std::int64_t pages = pages_for(tokens + 1) + pages_for(tokens - beyond + 1);
  if (pages > limits_.pages) {
    fail(ErrorCode::kInvalidArgument,
         "prompt and negative_prompt take {} pages of {} tokens together, the cache has {}", pages,
         kPageSlots, limits_.pages);
  }
  const std::int64_t longest =
      longest_of_pair(std::min(open.longest, limits_.longest - beyond), beyond, limits_.pages);
  if (longest < open.longest) {
    open.longest = longest;
    open.by_limit = false;
  }
  open.beyond = std::max<std::int64_t>(beyond, 0);
}

}  // namespace bl
