#include "server/llama_metrics.h"

#include <fmt/format.h>

#include <iterator>

namespace bl::server {
namespace {

double per_second(double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

}  // namespace

void LlamaMetrics::add_state(const EngineStats& stats) {
  running_ += stats.running;
  waiting_ += stats.waiting;
  steps_ += stats.steps;
  decode_tokens_ += stats.decode_tokens;
  rounds_ += stats.draft_rounds;
  drafted_ += stats.drafted_tokens;
  accepted_ += stats.accepted_tokens;
}

std::string LlamaMetrics::text() const {
  struct Sample {
    const char* name;
    const char* type;
    const char* help;
    double value;
  };
  const auto of = [](std::int64_t value) { return static_cast<double>(value); };
  const Sample samples[] = {
      {"prompt_tokens_total", "counter", "Tokens of prompts that were computed", of(prompt_tokens)},
      {"prompt_tokens_cached_total", "counter", "Tokens of prompts that were found in the cache",
       of(cached_tokens)},
      {"prompt_seconds_total", "counter", "Time spent on prompts", prompt_seconds},
      {"tokens_predicted_total", "counter", "Tokens of answers", of(generated_tokens)},
      {"tokens_predicted_seconds_total", "counter", "Time spent on answers", generated_seconds},
      {"n_decode_total", "counter", "Steps of the models", of(steps_)},
      {"n_tokens_max", "counter", "Tokens of the longest prompt with its answer", of(longest)},
      {"spec_decode_num_drafts_total", "counter", "Times that tokens of an answer were guessed",
       of(rounds_)},
      {"spec_decode_num_draft_tokens_total", "counter", "Tokens that were guessed", of(drafted_)},
      {"spec_decode_num_accepted_tokens_total", "counter", "Guesses that were right",
       of(accepted_)},
      {"prompt_tokens_seconds", "gauge", "Tokens of prompts a second, on average",
       per_second(of(prompt_tokens), prompt_seconds)},
      {"predicted_tokens_seconds", "gauge", "Tokens of an answer a second, on average",
       per_second(of(generated_tokens), generated_seconds)},
      {"requests_processing", "gauge", "Sequences that are computed now", of(running_)},
      {"requests_deferred", "gauge", "Sequences that wait for their turn", of(waiting_)},
      {"n_busy_slots_per_decode", "gauge", "Tokens of answers in a step, on average",
       steps_ > 0 ? of(decode_tokens_) / of(steps_) : 0},
  };
  std::string text;
  for (const Sample& sample : samples) {
    fmt::format_to(std::back_inserter(text),
                   "# HELP llamacpp:{0} {1}.\n# TYPE llamacpp:{0} {2}\nllamacpp:{0} {3}\n",
                   sample.name, sample.help, sample.type, sample.value);
  }
  return text;
}

}  // namespace bl::server
