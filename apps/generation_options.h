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

// The options of every command that generates.
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
    v(max_tokens, {"-n,--max-tokens", "N", "stop after N tokens", "an end token or the context"});
    v(min_tokens, {"--min-tokens", "N", "no end before N tokens"});
    v(stops, {"--stop", "TEXT", "stop before this text"});
    v(banned, {"--ban", "TEXT", "go on in another way where this text would come, in any case"});
    v(banned_tokens,
      {"--ban-token", "TEXT", "never choose this token; TEXT is what it says, such as ' yes'"});
    v(allowed_tokens, {"--allow-token", "TEXT", "choose among tokens that are given so only"});
    v(token_healing,
      {"--token-healing", "", "choose the prompt's last token again, so that a word may go on"});
    v(cfg_scale, {"--cfg-scale", "X",
                  "guidance: X times the prompt, 1 - X times the negative prompt", "1 (off)"});
    v(negative_prompt, {"--negative-prompt", "TEXT", "what guidance leads away from"});
    constraint.visit(v);
    v.group("Sampling (generation_config.json wins over these defaults, a preset over both)");
    preset.visit(v);
    sampling.visit(v);
    v(sampler_order,
      {"--sampler-order", "NAMES",
       "another order of the samplers, such as top-k,min-p,temperature; all that are "
       "on must be named"});
    v(greedy, {"--greedy", "", "always the likeliest token"});
  }

  // Defaults, the model's values over them, a preset's over those, flags over all but what a preset
  // forces. UsageError where a flag is out of range. A seed that was not given is drawn here.
  SamplingParams resolve(const SamplingParams& of_model) const;
  Request request(const SamplingParams& of_model) const;
};

// Lets the engine answer one request; `on_event` gets everything as it comes. A stop asked for by a
// signal cancels it (FinishReason::kCancelled). Throws what the request failed with.
Answer answer_request(Engine& engine, Request request,
                      const std::function<void(const Event&)>& on_event);

// "12 + 87 tokens, prefill 512.3 tok/s, decode 101.2 tok/s (end token)".
std::string describe(const Answer& answer);

}  // namespace bl
