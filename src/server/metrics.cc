#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "server/llama_metrics.h"

namespace bl::server {
namespace {

constexpr std::array kLatencies{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,  0.75,
                                1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0};
constexpr std::array kTokenTimes{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                 0.15,  0.2,    0.3,   0.4,  0.5,   0.75, 1.0,   2.5};
constexpr std::array kCounts{1.0,   2.0,    5.0,    10.0,   20.0,    50.0,    100.0,  200.0,
                             500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0};

struct HistogramText {
  const char* name;
  const char* help;
  std::span<const double> bounds;
};
enum Of { kFirstToken, kPerToken, kQueue, kPrefill, kDecode, kWhole, kPromptTokens, kAnswerTokens };
constexpr std::array<HistogramText, 8> kHistograms{{
    {"time_to_first_token_seconds", "From submission to the first token", kLatencies},
    {"time_per_output_token_seconds", "Between two tokens of an answer, on average", kTokenTimes},
    {"request_queue_time_seconds", "From submission to admission", kLatencies},
    {"request_prefill_time_seconds", "From admission to the first token", kLatencies},
    {"request_decode_time_seconds", "From the first token to the last", kLatencies},
    {"e2e_request_latency_seconds", "From submission to the last token", kLatencies},
    {"request_prompt_tokens", "Tokens of prompts", kCounts},
    {"request_generation_tokens", "Tokens of answers", kCounts},
}};

std::string escaped(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text;
}

std::string of_model(const std::string& name) { return fmt::format("model=\"{}\"", escaped(name)); }

// Families of samples; each is written once, with its samples together.
using Families = std::map<std::string, std::string>;

// The lines above the samples of a family.
std::string family_head(const std::string& name, const char* type, const char* help) {
  return fmt::format("# HELP bitloom:{} {}.\n# TYPE bitloom:{} {}\n", name, help, name, type);
}

struct Sample {
  const char* name;
  const char* type;
  const char* help;
  double value;
};

void write_sample(const Sample& sample, const std::string& labels, Families& families) {
  std::string& text = families[sample.name];
  if (text.empty()) text = family_head(sample.name, sample.type, sample.help);
  fmt::format_to(std::back_inserter(text), "bitloom:{}{{{}}} {}\n", sample.name, labels,
                 sample.value);
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

const char* ending_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kMaxTokens:
    case FinishReason::kContext:
      return "length";
    case FinishReason::kCancelled:
    case FinishReason::kDeadline:
      return "abort";
    case FinishReason::kError:
      return "error";
    case FinishReason::kEndToken:
    case FinishReason::kStopString:
    case FinishReason::kConstraint:
    case FinishReason::kLoop:
      break;
  }
  return "stop";
}

void Histogram::add(double value) {
  ++count_;
  sum_ += value;
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  if (at != bounds_.end()) ++counts_[static_cast<std::size_t>(at - bounds_.begin())];
}

void Histogram::write(const std::string& name, const std::string& labels, std::string& text) const {
  const auto out = std::back_inserter(text);
  std::int64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    fmt::format_to(out, "bitloom:{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bounds_[i], below);
  }
  fmt::format_to(out, "bitloom:{}_bucket{{{},le=\"+Inf\"}} {}\n", name, labels, count_);
  fmt::format_to(out, "bitloom:{}_sum{{{}}} {}\n", name, labels, sum_);
  fmt::format_to(out, "bitloom:{}_count{{{}}} {}\n", name, labels, count_);
}

Metrics::OfModel::OfModel() {
  for (const HistogramText& each : kHistograms) histograms.emplace_back(each.bounds);
}

void Metrics::on_request(const Asked& asked) {
  const std::scoped_lock lock(mutex_);
  ++requests_[{asked.route, asked.method, asked.status}];
  seconds_.try_emplace(asked.route, kLatencies).first->second.add(asked.seconds);
}

void Metrics::on_answer(const std::string& model, const Event& last) {
  const Usage& usage = last.usage;
  const std::scoped_lock lock(mutex_);
  OfModel& own = models_[model];
  ++own.answers;
  ++own.endings[ending_name(*last.finish)];
  own.generated_tokens += usage.generated_tokens;
  own.longest = std::max(own.longest, usage.prompt_tokens + usage.generated_tokens);
  own.generated_seconds += usage.decode_seconds;
  const auto add = [&](Of which, double value) { own.histograms[which].add(value); };
  if (last.choice == 0) {  // all choices of a request share its prompt
    own.prompt_tokens += usage.prompt_tokens - usage.cached_tokens;
    own.cached_tokens += usage.cached_tokens;
    own.prompt_seconds += usage.prefill_seconds;
    add(kQueue, usage.queue_seconds);
    add(kPromptTokens, static_cast<double>(usage.prompt_tokens));
  }
  add(kAnswerTokens, static_cast<double>(usage.generated_tokens));
  if (usage.generated_tokens == 0) return;
  const double first = usage.queue_seconds + usage.prefill_seconds;
  add(kFirstToken, first);
  add(kPrefill, usage.prefill_seconds);
  add(kDecode, usage.decode_seconds);
  add(kWhole, first + usage.decode_seconds);
  if (usage.generated_tokens > 1) {
    add(kPerToken, usage.decode_seconds / static_cast<double>(usage.generated_tokens - 1));
  }
}

void Metrics::on_embedding(const std::string& model, std::int64_t tokens, double seconds) {
  const std::scoped_lock lock(mutex_);
  OfModel& own = models_[model];
  own.prompt_tokens += tokens;
  own.prompt_seconds += seconds;
}

void Metrics::write_state(const ModelState& model, Families& families) {
  const EngineStats& now = model.stats;
  const auto of = [](auto value) { return static_cast<double>(value); };
  const double used = of(now.pages - now.free_pages - now.idle_pages);
  const Sample samples[] = {
      {"requests_processing", "gauge", "Sequences that are computed now", of(now.running)},
      {"requests_deferred", "gauge", "Sequences that wait for their turn", of(now.waiting)},
      {"kv_cache_usage_ratio", "gauge", "Share of the cache's pages that requests use",
       ratio(used, of(now.pages))},
      {"kv_cache_pages", "gauge", "Pages of the cache", of(now.pages)},
      {"kv_cache_idle_pages", "gauge", "Pages that are kept for their contents alone",
       of(now.idle_pages)},
      {"steps_total", "counter", "Steps of the model", of(now.steps)},
      {"step_seconds_total", "counter", "Time of whole steps", now.step_seconds},
      {"model_seconds_total", "counter", "Time of steps that went into the model",
       now.model_seconds},
      {"prefill_tokens_total", "counter", "Tokens of prompts that were computed",
       of(now.prefill_tokens)},
      {"decode_tokens_total", "counter", "Tokens of answers that were computed",
       of(now.decode_tokens)},
      {"preemptions_total", "counter", "Answers that gave their pages back for a while",
       of(now.preemptions)},
      {"drafts_total", "counter", "Times that tokens of an answer were guessed",
       of(now.draft_rounds)},
      {"draft_tokens_total", "counter", "Tokens that were guessed", of(now.drafted_tokens)},
      {"accepted_tokens_total", "counter", "Guesses that were right", of(now.accepted_tokens)},
      {"n_busy_slots_per_decode", "gauge", "Tokens of answers in a step, on average",
       ratio(of(now.decode_tokens), of(now.steps))},
  };
  for (const Sample& sample : samples) write_sample(sample, of_model(model.name), families);
}

std::string Metrics::text(std::span<const ModelState> models) const {
  Families families;
  LlamaMetrics total;
  for (const ModelState& model : models) {
    write_state(model, families);
    total.add_state(model.stats);
  }
  const std::scoped_lock lock(mutex_);
  for (const auto& [name, own] : models_) {
    const std::string labels = of_model(name);
    total.prompt_tokens += own.prompt_tokens;
    total.cached_tokens += own.cached_tokens;
    total.generated_tokens += own.generated_tokens;
    total.longest = std::max(total.longest, own.longest);
    total.prompt_seconds += own.prompt_seconds;
    total.generated_seconds += own.generated_seconds;
    const auto of = [](std::int64_t value) { return static_cast<double>(value); };
    const Sample samples[] = {
        {"prompt_tokens_total", "counter", "Tokens of prompts, without those that were cached",
         of(own.prompt_tokens)},
        {"cached_tokens_total", "counter", "Tokens of prompts that were found in the cache",
         of(own.cached_tokens)},
        {"tokens_predicted_total", "counter", "Tokens of answers", of(own.generated_tokens)},
        {"prompt_seconds_total", "counter", "Time spent on prompts", own.prompt_seconds},
        {"tokens_predicted_seconds_total", "counter", "Time spent on answers",
         own.generated_seconds},
        {"prompt_tokens_seconds", "gauge", "Tokens of prompts a second, on average",
         ratio(of(own.prompt_tokens), own.prompt_seconds)},
        {"predicted_tokens_seconds", "gauge", "Tokens of an answer a second, on average",
         ratio(of(own.generated_tokens), own.generated_seconds)},
    };
    for (const Sample& sample : samples) write_sample(sample, labels, families);
    for (const auto& [ending, count] : own.endings) {
      write_sample({"request_success_total", "counter", "Answers, by how they ended", of(count)},
                   fmt::format("{},finished_reason=\"{}\"", labels, ending), families);
    }
    for (std::size_t i = 0; i < kHistograms.size(); ++i) {
      std::string& family = families[kHistograms[i].name];
      if (family.empty()) {
        family = family_head(kHistograms[i].name, "histogram", kHistograms[i].help);
      }
      own.histograms[i].write(kHistograms[i].name, labels, family);
    }
  }
  for (const auto& [key, count] : requests_) {
    const auto& [route, method, status] = key;
    write_sample({"http_requests_total", "counter", "Requests of HTTP that were answered",
                  static_cast<double>(count)},
                 fmt::format("route=\"{}\",method=\"{}\",status=\"{}\"", route, method, status),
                 families);
  }
  for (const auto& [route, histogram] : seconds_) {
    std::string& family = families["http_request_duration_seconds"];
    if (family.empty()) {
      family = family_head("http_request_duration_seconds", "histogram",
                           "From a request's arrival to the end of its answer");
    }
    histogram.write("http_request_duration_seconds", fmt::format("route=\"{}\"", route), family);
  }
  std::string text;
  for (const auto& [name, family] : families) text += family;
  return text + total.text();
}

}  // namespace bl::server
