#include "generation_options.h"

#include <random>

#include "usage_error.h"

namespace bl {

SamplingParams GenerationOptions::resolve(const SamplingParams& of_model) const {
  SamplingParams params = of_model;
  sampling.apply(params);
  if (greedy) params.temperature = 0;
  if (!sampling.is_given("seed")) {
    std::random_device device;
    params.seed = (std::uint64_t{device()} << 32) | device();
  }
  try {
    validate(params);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  return params;
}

GenerationRequest GenerationOptions::request(const SamplingParams& of_model) const {
  if (max_tokens < 0) fail_usage("-n: {} should be a number of tokens, 1 or more", max_tokens);
  for (const std::string& stop : stops) {
    if (stop.empty()) fail_usage("--stop: the text is empty");
  }
  GenerationRequest request;
  request.sampling = resolve(of_model);
  request.max_tokens = max_tokens;
  request.stops = stops;
  return request;
}

std::string describe(const Generation& generation) {
  const GenerationStats& stats = generation.stats;
  std::string text = fmt::format("{} + {} tokens", stats.prompt_tokens, stats.generated_tokens);
  if (stats.reused_tokens > 0) text += fmt::format(", {} from the cache", stats.reused_tokens);
  return text + fmt::format(", prefill {:.1f} tok/s, decode {:.1f} tok/s ({})",
                            stats.prefill_rate(), stats.decode_rate(), name_of(generation.reason));
}

}  // namespace bl
