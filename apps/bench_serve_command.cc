// bench serve: puts a load on the engine in this process, as a server would, without HTTP.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "cache/kv_cache.h"
#include "command.h"
#include "engine/engine.h"
#include "engine/page_table_view.h"
#include "model_options.h"
#include "preset_option.h"
#include "random_model_flags.h"
#include "results.h"
#include "speculation_flags.h"
#include "usage_error.h"

namespace bl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook(50);  // interval at which to check for an interrupt

struct BenchServeOptions {
  ModelOptions model;
  SpeculationFlags speculation;
  std::int64_t requests = 32;
  std::int64_t users = 16;
  std::int64_t prompt = 128;
  std::int64_t generate = 64;
  std::int64_t shared = 0;
  bool evict = false;
  double rate = 0;
  double page_table = 0;
  std::uint64_t seed = 1;
  PresetOption preset;
  PresetOption one_preset{"--one-preset", {}};
  RandomModelFlags random;
  std::string random_draft;
  bool json = false;

  BenchServeOptions() { model.context_default = "what the requests need"; }
  template <class V>
  void visit(V&& v) {
    v.group("Load");
    v(requests, {"-r,--requests", "N", "total number of requests"});
    v(users,
      {"-c,--concurrency", "N", "concurrent users, who wait for an answer before asking again"});
    v(prompt, {"-p,--prompt-tokens", "N", "random tokens per prompt"});
    v(generate, {"-n,--generate-tokens", "N", "tokens per answer"});
    v(shared, {"--shared-prefix", "N", "additional tokens that all prompts start with"});
    v(evict, {"--evict", "", "evict all unused pages of the cache before each request"});
    v(rate, {"--rate", "X", "requests per second at random times; 0: when a user is free"});
    v(seed, {"--seed", "N", "seed of prompts and arrival times"});
    preset.visit(v);
    v(one_preset.source, {"--one-preset", "NAME|FILE",
                          "preset of one user that is left out of the percentiles", "none"});
    random.visit(v);
    v(random_draft, {"--random-draft", "SHAPE",
                     "random draft model with the same vocabulary: shows only its cost"});
    v.group("Output");
    v(json, {"--json", "", "print JSON"});
    v(page_table, {"--page-table", "SECONDS",
                   "print the page table on stderr this often, and at the end", "never"});
    speculation.visit(v);
    model.visit(v);
  }
};

void check(const BenchServeOptions& options) {
  check_range("-r", options.requests, 1, 1 << 24);
  check_range("-c", options.users, 1, 1024);
  check_range("-p", options.prompt, 1, 1 << 24);
  check_range("-n", options.generate, 1, 1 << 24);
  check_range("--shared-prefix", options.shared, 0, 1 << 24);
  options.random.check();
  if (options.random.wanted() != options.model.model.empty()) {
    fail_usage("bench serve: give either -m DIR or --random SHAPE");
  }
  if (options.one_preset.source && options.users < 2) {
    fail_usage("--one-preset needs at least two users (-c 2)");
  }
  if (options.page_table != 0 && !(options.page_table >= 0.01 && options.page_table <= 86400)) {
    fail_usage("--page-table: {} is not in 0.01 … 86400", options.page_table);
  }
  if (!(options.rate >= 0)) fail_usage("--rate: {} should be 0 or more", options.rate);
}

// How one user saw one answer; times in seconds.
struct Observation {
  double first_token = 0;       // from the submission
  std::vector<double> between;  // between tokens; 0 between tokens that arrived together
  double whole = 0;
  Usage usage;
  bool counts = true;  // whether it is included in the percentiles
};

// Prints a running engine's page table every `seconds`, and once more at the end. Does nothing if
// `seconds` is 0.
class PageTableDisplay {
 public:
  PageTableDisplay(Engine& engine, double seconds) : engine_(engine) {
    if (seconds > 0) thread_ = std::thread([this, seconds] { repeat(seconds); });
  }
  PageTableDisplay(const PageTableDisplay&) = delete;
  PageTableDisplay& operator=(const PageTableDisplay&) = delete;
  ~PageTableDisplay() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  void repeat(double seconds) {
    const std::chrono::duration<double> period(seconds);
    bool is_over = false;
    while (!is_over) {
      {
        std::unique_lock lock(mutex_);
        is_over = changed_.wait_for(lock, period, [this] { return is_over_; });
      }
      std::string text;
      try {
        text = to_text(engine_.page_table());
      } catch (const std::exception& error) {
        text = fmt::format("the page table is not available: {}\n", error.what());
      }
      std::fwrite(text.data(), 1, text.size(), stderr);
    }
  }

  Engine& engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

class Load {
 public:
  Load(Engine& engine, const BenchServeOptions& options)
      : engine_(engine),
        options_(options),
        progress_("requests", options.requests, Progress::Unit::kItems) {
    sampling_ = sampling_of(options.preset);
    if (options.one_preset.source) one_sampling_ = sampling_of(options.one_preset);
    std::mt19937_64 random(options.seed);
    std::uniform_int_distribution<std::int32_t> id(
        0, static_cast<std::int32_t>(engine.session().vocab()) - 1);
    const auto draw = [&](std::int64_t tokens) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
      for (std::int32_t& token : ids) token = id(random);
      return ids;
    };
    const std::vector<std::int32_t> shared = draw(options.shared);
    std::exponential_distribution<double> pause(options.rate > 0 ? options.rate : 1);
    double at = 0;
    for (std::int64_t i = 0; i < options.requests; ++i) {
      std::vector<std::int32_t> ids = shared;
      for (const std::int32_t token : draw(options.prompt)) ids.push_back(token);
      prompts_.push_back(std::move(ids));
      if (options.rate > 0) at += pause(random);
      arrivals_.push_back(at);
    }
  }

  // Runs all requests from one thread per user, and returns the seconds it took.
  double run() {
    const PageTableDisplay display(engine_, options_.page_table);
    const auto start = Clock::now();
    std::vector<std::thread> users;
    for (std::int64_t i = 0; i < options_.users; ++i) {
      users.emplace_back([this, start, i] { use(start, i == 0 && one_sampling_); });
    }
    for (std::thread& user : users) user.join();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  const std::vector<Observation>& observations() const { return observations_; }
  const std::string& error() const { return error_; }

 private:
  static SamplingParams sampling_of(const PresetOption& option) {
    SamplingParams sampling;
    sampling.temperature = 0;
    if (const auto preset = option.load()) {
      sampling = SamplingParams::plain();
      preset->apply(sampling);
    }
    return sampling;
  }

  void use(Clock::time_point start, bool is_the_one) {
    while (!interrupted()) {
      std::size_t index = 0;
      {
        const std::lock_guard lock(mutex_);
        if (next_ == prompts_.size() || !error_.empty()) return;
        index = next_++;
      }
      if (!wait_until(start, arrivals_[index])) return;
      try {
        ask(prompts_[index], is_the_one);
        // If the engine refuses one request, it would refuse the others too.
      } catch (const Error& error) {
        const std::lock_guard lock(mutex_);
        error_ = error.what();
      }
    }
  }

  // Waits until `seconds` after the start. Returns false if the user interrupted.
  static bool wait_until(Clock::time_point start, double seconds) {
    while (!interrupted()) {
      const std::chrono::duration<double> left(
          seconds - std::chrono::duration<double>(Clock::now() - start).count());
      if (left.count() <= 0) return true;
      std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(left, kLook));
    }
    return false;
  }

  void ask(const std::vector<std::int32_t>& prompt, bool is_the_one) {
    Request request;
    request.prompt = prompt;
    request.sampling = is_the_one ? *one_sampling_ : sampling_;
    request.sampling.max_tokens = options_.generate;
    request.ignore_end_tokens = true;
    if (options_.evict) engine_.evict();
    const auto start = Clock::now();
    auto last = start;
    Observation seen;
    seen.counts = !is_the_one;
    RequestHandle handle = engine_.submit(std::move(request));
    std::string error;
    while (!handle.over()) {
      if (interrupted()) handle.cancel();
      const std::optional<Event> event = handle.next(kLook);
      if (!event) continue;
      const auto now = Clock::now();
      // The answer is incomplete, so do not count it.
      if (event->finish == FinishReason::kCancelled) return;
      if (event->finish == FinishReason::kError) error = event->error;
      if (event->finish) seen.usage = event->usage;
      for (std::size_t i = 0; i < event->ids.size(); ++i) {
        const double apart = std::chrono::duration<double>(now - last).count();
        if (last == start) {
          seen.first_token = apart;
        } else {
          seen.between.push_back(apart);
        }
        last = now;
      }
    }
    seen.whole = std::chrono::duration<double>(last - start).count();
    progress_.advance(1);
    const std::lock_guard lock(mutex_);
    if (!error.empty()) error_ = error;
    observations_.push_back(std::move(seen));
  }

  Engine& engine_;
  const BenchServeOptions& options_;
  SamplingParams sampling_;
  std::optional<SamplingParams> one_sampling_;
  Progress progress_;
  std::vector<std::vector<std::int32_t>> prompts_;
  std::vector<double> arrivals_;
  std::mutex mutex_;
  std::size_t next_ = 0;
  std::vector<Observation> observations_;
  std::string error_;
};

// Percentiles in milliseconds, by nearest rank.
Json percentiles(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    if (seconds.empty()) return 0.0;
    const auto rank =
        static_cast<std::size_t>(std::ceil(share * static_cast<double>(seconds.size())));
    return 1000 * seconds[std::max<std::size_t>(rank, 1) - 1];
  };
  return {
      {"p50", at(0.50)}, {"p90", at(0.90)}, {"p95", at(0.95)}, {"p99", at(0.99)}, {"max", at(1.0)}};
}

Json cache_report(const EngineStats& stats) {
  const CacheStats& cache = stats.cache;
  return {{"hit_rate", cache.hit_rate()},
          {"pages", stats.pages},
          {"pages_shared", cache.pages_shared},
          {"pages_copied", cache.pages_copied},
          {"pages_evicted", cache.pages_evicted},
          {"host_pages", stats.host_pages},
          {"host_pages_stored", cache.pages_stored},
          {"host_pages_restored", cache.pages_restored},
          {"host_pages_dropped", cache.pages_dropped},
          {"host_tokens_restored", cache.tokens_restored},
          {"host_bytes_per_second", stats.host_copy_rate}};
}

Json report(const Load& load, double seconds, Engine& engine) {
  std::vector<double> first;
  std::vector<double> queue;
  std::vector<double> prefill;
  std::vector<double> delivery;
  std::vector<double> between;
  std::vector<double> whole;
  std::int64_t prompt = 0;
  std::int64_t cached = 0;
  std::int64_t generated = 0;
  std::int64_t preemptions = 0;
  for (const Observation& seen : load.observations()) {
    prompt += seen.usage.prompt_tokens;
    cached += seen.usage.cached_tokens;
    generated += seen.usage.generated_tokens;
    preemptions += seen.usage.preemptions;
    if (!seen.counts) continue;
    first.push_back(seen.first_token);
    queue.push_back(seen.usage.queue_seconds);
    prefill.push_back(seen.usage.prefill_seconds);
    delivery.push_back(std::max(0.0, seen.first_token - queue.back() - prefill.back()));
    whole.push_back(seen.whole);
    between.insert(between.end(), seen.between.begin(), seen.between.end());
  }
  const auto rate = [&](std::int64_t count) { return static_cast<double>(count) / seconds; };
  const EngineStats stats = engine.settled_stats();
  return {{"requests", load.observations().size()},
          {"seconds", seconds},
          {"requests_per_second", rate(static_cast<std::int64_t>(load.observations().size()))},
          {"prompt_tokens", prompt},
          {"cached_tokens", cached},
          {"generated_tokens", generated},
          {"generated_per_second", rate(generated)},
          {"tokens_per_second", rate(prompt - cached + generated)},
          {"preemptions", preemptions},
          {"steps", stats.steps},
          {"step_seconds", stats.step_seconds},
          {"model_seconds", stats.model_seconds},
          {"drafted_tokens", stats.drafted_tokens},
          {"accepted_tokens", stats.accepted_tokens},
          {"draft_seconds", stats.draft_seconds},
          {"cache", cache_report(stats)},
          {"ttft_ms", percentiles(first)},
          {"queue_ms", percentiles(queue)},
          {"prefill_ms", percentiles(prefill)},
          {"delivery_ms", percentiles(delivery)},
          {"itl_ms", percentiles(between)},
          {"latency_ms", percentiles(whole)},
          {"backend", engine.session().backend().description()}};
}

std::string to_table(const Json& report) {
  std::string text = fmt::format(
      "{} requests in {:.2f} s: {:.2f} requests/s, {:.1f} tok/s generated, {:.1f} tok/s computed\n"
      "{} prompt tokens ({} from the cache), {} generated, {} steps, {} preemptions\n",
      report["requests"].get<std::int64_t>(), report["seconds"].get<double>(),
      report["requests_per_second"].get<double>(), report["generated_per_second"].get<double>(),
      report["tokens_per_second"].get<double>(), report["prompt_tokens"].get<std::int64_t>(),
      report["cached_tokens"].get<std::int64_t>(), report["generated_tokens"].get<std::int64_t>(),
      report["steps"].get<std::int64_t>(), report["preemptions"].get<std::int64_t>());
  const double in_steps = report["step_seconds"].get<double>();
  const double in_model = report["model_seconds"].get<double>();
  text += fmt::format("{:.3f} s in steps: {:.3f} s in the model, {:.3f} s elsewhere\n", in_steps,
                      in_model, in_steps - in_model);
  const std::string guesses = describe_speculation(report["drafted_tokens"].get<std::int64_t>(),
                                                   report["accepted_tokens"].get<std::int64_t>());
  if (!guesses.empty()) {
    text += fmt::format("{}, {:.2f} s spent on drafting\n", guesses,
                        report["draft_seconds"].get<double>());
  }
  const Json& cache = report["cache"];
  const auto number = [&](const char* key) { return cache[key].get<std::int64_t>(); };
  text += fmt::format("cache: hit rate {:.1f} %; {} pages, {} shared, {} copied, {} evicted\n",
                      100 * cache["hit_rate"].get<double>(), number("pages"),
                      number("pages_shared"), number("pages_copied"), number("pages_evicted"));
  if (number("host_pages") > 0) {
    text += fmt::format("host memory: {} pages; {} stored, {} restored, {} dropped; {}/s\n",
                        number("host_pages"), number("host_pages_stored"),
                        number("host_pages_restored"), number("host_pages_dropped"),
                        human_bytes(cache["host_bytes_per_second"].get<double>()));
  }
  text += fmt::format("\n| {:<14} | {:>9} | {:>9} | {:>9} | {:>9} | {:>9} |\n", "ms", "p50", "p90",
                      "p95", "p99", "max");
  text += fmt::format("| {:-<14} | {:->8}: | {:->8}: | {:->8}: | {:->8}: | {:->8}: |\n", "", "", "",
                      "", "", "");
  const auto row = [&](const char* name, const char* key) {
    text += fmt::format("| {:<14} |", name);
    for (const char* share : {"p50", "p90", "p95", "p99", "max"}) {
      text += fmt::format(" {:>9.2f} |", report[key][share].get<double>());
    }
    text += "\n";
  };
  row("first token", "ttft_ms");
  row("  queue", "queue_ms");
  row("  prefill", "prefill_ms");
  row("  delivery", "delivery_ms");
  row("between tokens", "itl_ms");
  row("whole answer", "latency_ms");
  return text;
}

void bench_serve(BenchServeOptions& options) {
  check(options);
  if (!options.random_draft.empty() && options.speculation.on()) {
    fail_usage("--random-draft excludes --draft and --ngram; give only one");
  }
  if (!options.random_draft.empty()) {
    options.speculation.opened =
        options.random.open(options.random_draft, options.model.archs).opened;
  }
  options.speculation.check();
  options.preset.load();
  options.one_preset.load();  // check the presets before the model is loaded
  const std::int64_t tokens = options.shared + options.prompt + options.generate;
  if (options.model.context == 0) options.model.context = tokens;
  SessionOptions session_options = options.model.session_options(!options.random.wanted());
  if (options.random.wanted()) {
    session_options.opened = options.random.open(options.model.archs).opened;
    session_options.with_text = false;
  }
  session_options.longest = std::max(tokens, options.model.context);
  session_options.sequences = options.users;
  // The shared beginning needs its pages once; each user gets two spare pages for how answers grow.
  session_options.pages = KvCache::pages_for(options.shared) +
                          static_cast<std::int32_t>(options.users) *
                              (KvCache::pages_for(options.prompt + options.generate) + 2);
  session_options.pages =
      std::max(session_options.pages, KvCache::pages_for(session_options.longest));
  EngineOptions engine_options;
  engine_options.speculation = options.speculation.load(options.model, session_options);
  Engine engine(load_session(session_options, CacheCheck::kSkip), std::move(engine_options));
  double seconds = 0;
  Json result;
  {
    Load load(engine, options);
    seconds = load.run();
    if (!load.error().empty()) fail(ErrorCode::kLimit, "a request failed: {}", load.error());
    if (load.observations().empty()) check_interrupt();
    result = report(load, seconds, engine);
  }
  if (options.json) {
    write_json(result);
  } else {
    write_result(to_table(result));
  }
  // After an interrupt the report covers the answers that were complete by then.
  check_interrupt();
}

}  // namespace

Command bench_serve_command() {
  return make_command<BenchServeOptions>(
      {"bench serve",
       "(-m DIR | --random SHAPE) [-r N] [-c N] [-p N] [-n N] [--shared-prefix N] [--evict] "
       "[--rate X]",
       "Measure many concurrent requests: throughput, and latencies of their tokens",
       {{"200 requests, 16 of them at once", "bitloom bench serve -m DIR -r 200 -c 16"},
        {"Requests that arrive at random, 4 per second, and begin with the same 1000 tokens",
         "bitloom bench serve -m DIR -r 200 --rate 4 --shared-prefix 1000"}}},
      bench_serve);
}

}  // namespace bl
