#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "constraint_options.h"
#include "engine/engine.h"
#include "overrides.h"
#include "preset_option.h"
#include "sample/sampling_params.h"

namespace bl {

// The options of every command that generates text.
struct GenerationOptions {
  std::optional<std::int64_t> max_tokens;
  std::int64_t min_tokens = 0;
  std::vector<std::string> stops;
  std::vector<std::string> banned;
  std::vector<std::string> banned_tokens;
  std::vector<std::string> allowed_tokens;
  bool token_healing = false;
  std::optional<double> cfg_scale;
  std::string negative_prompt;
  bool greedy = false;
  ConstraintOptions constraint;
  PresetOption preset;
  Overrides<SamplingParams> sampling;
  std::string sampler_order;

  template <class V>
  void visit(V&& v) {
    v.group("Generation");
    v(max_tokens,
      {"-n,--max-tokens", "N", "stop after N tokens", "until an end token or the context length"});
    v(min_tokens, {"--min-tokens", "N", "do not end before N tokens"});
    v(stops, {"--stop", "TEXT", "stop before this text"});
    v(banned, {"--ban", "TEXT", "never generate this text, in upper or lower case"});
    v(banned_tokens,
      {"--ban-token", "TEXT", "never choose the token with this text, such as ' yes'"});
    v(allowed_tokens, {"--allow-token", "TEXT", "choose only among the tokens with these texts"});
    v(token_healing,
      {"--token-healing", "", "choose the prompt's last token again, so that a word can continue"});
    v(cfg_scale, {"--cfg-scale", "X", "classifier-free guidance: weight of the prompt", "1 (off)"});
    v(negative_prompt,
      {"--negative-prompt", "TEXT", "classifier-free guidance: text to steer away from"});
    constraint.visit(v);
    v.group("Sampling (generation_config.json overrides these defaults, a preset overrides both)");
    preset.visit(v);
    sampling.visit(v);
    v(sampler_order,
      {"--sampler-order", "NAMES", "order of the samplers that are on: top-k,min-p,temperature"});
    v(greedy, {"--greedy", "", "always choose the likeliest token"});
  }

  // The sampling parameters, in ascending priority: defaults, the model's values, a preset, flags,
  // and values that a preset forces. Throws UsageError if a flag is out of range. Draws a seed if
  // none was given.
  SamplingParams resolve(const SamplingParams& of_model) const;
  // The request without its prompt. Throws UsageError for wrong flags.
  Request request(const SamplingParams& of_model) const;
};

// Runs one request to its end and passes every event to `on_event`. A signal cancels the request
// (FinishReason::kCancelled). Throws the error of a request that failed.
Answer answer_request(Engine& engine, Request request,
                      const std::function<void(const Event&)>& on_event);

// Such as "12 + 87 tokens, prefill 512.3 tok/s, decode 101.2 tok/s (end token)".
std::string describe(const Answer& answer);

}  // namespace bl
