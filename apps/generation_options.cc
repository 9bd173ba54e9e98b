#include "generation_options.h"

#include <chrono>

#include "base/interrupt.h"
#include "base/random_seed.h"
#include "comma_list.h"
#include "usage_error.h"

namespace bl {

namespace {

// Sets a list to what the user gave, or appends that to the list if `behind`.
void add_texts(const std::vector<std::string>& given, bool behind, std::vector<std::string>& to) {
  if (given.empty()) return;
  if (!behind) to.clear();
  to.insert(to.end(), given.begin(), given.end());
}

// Does the same for tokens, which the user gives by their texts.
void add_tokens(const std::vector<std::string>& given, bool behind, std::vector<std::int32_t>& ids,
                std::vector<std::string>& pieces) {
  if (!given.empty() && !behind) ids.clear();
  add_texts(given, behind, pieces);
}

void need_texts(const char* flag, const std::vector<std::string>& given) {
  for (const std::string& text : given) {
    if (text.empty()) fail_usage("{}: the text is empty", flag);
  }
}

}  // namespace

SamplingParams GenerationOptions::resolve(const SamplingParams& of_model) const {
  SamplingParams params = of_model;
  const std::optional<SamplingPreset> named = preset.load();
  if (named) named->apply(params);
  sampling.apply(params);
  if (!sampler_order.empty()) params.sampler_order = split_at_commas(sampler_order);
  params.max_tokens = max_tokens.value_or(params.max_tokens);
  params.min_tokens = min_tokens > 0 ? min_tokens : params.min_tokens;
  add_texts(stops, named && named->adds("stop"), params.stop_strings);
  add_texts(banned, named && named->adds("banned_strings"), params.banned_strings);
  add_tokens(banned_tokens, named && named->adds("banned_tokens"), params.banned_tokens,
             params.banned_pieces);
  add_tokens(allowed_tokens, named && named->adds("allowed_tokens"), params.allowed_tokens,
             params.allowed_pieces);
  params.token_healing = token_healing || params.token_healing;
  params.cfg_scale = cfg_scale.value_or(params.cfg_scale);
  if (!negative_prompt.empty()) params.negative_prompt = negative_prompt;
  if (greedy) params.temperature = 0;
  if (named) named->apply_forced(params);
  if (!negative_prompt.empty() && params.cfg_scale == 1) {
    fail_usage("--negative-prompt has no effect without --cfg-scale, such as --cfg-scale 1.5");
  }
  if (!sampling.is_given("seed")) params.seed = random_seed();
  try {
    validate(params);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  return params;
}

Request GenerationOptions::request(const SamplingParams& of_model) const {
  if (max_tokens && *max_tokens < 1) {
    fail_usage(
        "-n: {} should be a number of tokens, 1 or more; without -n the answer may fill the "
        "context length",
        *max_tokens);
  }
  if (min_tokens < 0) fail_usage("--min-tokens: {} should be 0 or more", min_tokens);
  need_texts("--stop", stops);
  need_texts("--ban", banned);
  need_texts("--ban-token", banned_tokens);
  need_texts("--allow-token", allowed_tokens);
  Request request;
  request.sampling = resolve(of_model);
  request.constraint = constraint.spec();
  return request;
}

Answer answer_request(Engine& engine, Request request,
                      const std::function<void(const Event&)>& on_event) {
  constexpr std::chrono::milliseconds kPoll{50};
  RequestHandle handle = engine.submit(std::move(request));
  Answer answer;
  while (!handle.over()) {
    if (interrupted()) handle.cancel();
    std::optional<Event> event = handle.next(kPoll);
    if (!event) continue;
    on_event(*event);
    answer.add(std::move(*event));
  }
  if (answer.reason == FinishReason::kError) fail(answer.code, "{}", answer.error);
  return answer;
}

std::string describe(const Answer& answer) {
  const Usage& usage = answer.usage;
  std::string text = fmt::format("{} + {} tokens", usage.prompt_tokens, usage.generated_tokens);
  if (usage.cached_tokens > 0) text += fmt::format(", {} from the cache", usage.cached_tokens);
  if (usage.drafted_tokens > 0) {
    text += fmt::format(", {} of {} drafted tokens accepted", usage.accepted_tokens,
                        usage.drafted_tokens);
  }
  return text + fmt::format(", prefill {:.1f} tok/s, decode {:.1f} tok/s ({})",
                            usage.prefill_rate(), usage.decode_rate(), name_of(answer.reason));
}

}  // namespace bl
