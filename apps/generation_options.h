#pragma once
#include <functional>
#include <string>
#include <vector>

#include "constraint_options.h"
#include "engine/engine.h"
#include "overrides.h"
#include "sample/sampling_params.h"

namespace bl {

// The options of every command that generates.
struct GenerationOptions {
  std::int64_t max_tokens = 0;
  std::vector<std::string> stops;
  bool greedy = false;
  ConstraintOptions constraint;
  Overrides<SamplingParams> sampling;

  template <class V>
  void visit(V&& v) {
    v.group("Generation");
    v(max_tokens, {"-n,--max-tokens", "N", "stop after N tokens", "an end token or the context"});
    v(stops, {"--stop", "TEXT", "stop before this text"});
    constraint.visit(v);
    v.group("Sampling (a model's generation_config.json wins over these defaults)");
    sampling.visit(v);
    v(greedy, {"--greedy", "", "always the likeliest token"});
  }

  // Defaults, the model's values over them, flags over both. UsageError where a flag is out of
  // range. A seed that was not given is drawn here.
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
