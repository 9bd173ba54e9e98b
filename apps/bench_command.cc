#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>

#include "backend/registry.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/seconds_since.h"
#include "cache/kv_cache.h"
#include "command.h"
#include "engine/host_memory.h"
#include "engine/open_model.h"
#include "engine/row_sampler.h"
#include "engine/step_runner.h"
#include "launch_tuning.h"
#include "model_options.h"
#include "preset_option.h"
#include "random_model_flags.h"
#include "results.h"
#include "step_check.h"
#include "step_profile.h"
#include "usage_error.h"

namespace bl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kDecodeDepth = 128;

struct BenchOptions {
  ModelOptions model;
  std::int64_t prompt = 512;
  std::int64_t generate = 128;
  std::int64_t batch = 1;
  std::optional<std::int64_t> depth;
  std::int64_t repetitions = 5;
  PresetOption preset;
  RandomModelFlags random;
  bool json = false;
  bool profile = false;
  bool check = false;
  std::string against;
  std::string tune;

  BenchOptions() { model.context_default = "what the tests need"; }
  template <class V>
  void visit(V&& v) {
    v.group("Tests");
    v(prompt, {"-p,--prompt-tokens", "N", "prefill N tokens; 0: no such test"});
    v(generate, {"-n,--generate-tokens", "N", "decode N tokens; 0: no such test"});
    v(batch, {"-b,--batch", "N", "sequences at once"});
    v(depth, {"-d,--depth", "N", "tokens that are in the cache before a test starts",
              "0 for prefill, 128 for decode"});
    v(repetitions, {"-r,--repetitions", "N", "timed runs, after one that is not"});
    preset.visit(v);
    random.visit(v);
    v(profile,
      {"--profile", "", "run each test once more, op by op, and show where its time goes"});
    v(check, {"--check", "",
              "instead of measuring, check that tokens get the same logits alone and a few at a "
              "time as in a prompt, up to rounding; exit status 1 where they do not"});
    v(against, {"--against", "BACKEND",
                "with --check: compare the prompt with what another backend makes of it, too, such "
                "as ref, for which the model is loaded a second time"});
    v(tune, {"--tune", "FILE",
             "instead: measure from how many tokens on which kernels are faster on this card, and "
             "write FILE, as src/backend/cuda/gemm/plans has them"});
    v.group("Output");
    v(json, {"--json", "", "print JSON"});
    model.visit(v);
  }

  std::int64_t prefill_depth() const { return depth.value_or(0); }
  std::int64_t decode_depth() const { return depth.value_or(kDecodeDepth); }
  std::int64_t longest() const {
    if (check) return kCheckedTokens;
    return std::max(prompt > 0 ? prefill_depth() + prompt : 0,
                    generate > 0 ? decode_depth() + generate : 0);
  }
};

void check(const BenchOptions& options) {
  check_range("-p", options.prompt, 0, 1 << 24);
  check_range("-n", options.generate, 0, 1 << 24);
  check_range("-b", options.batch, 1, 4096);
  check_range("-d", options.depth.value_or(0), 0, 1 << 24);
  check_range("-r", options.repetitions, 1, 1000);
  if (options.longest() == 0) fail_usage("bench: -p 0 and -n 0 leave nothing to measure");
  if (options.profile && (options.check || !options.tune.empty())) {
    fail_usage("bench: --profile goes with neither --check nor --tune");
  }
  if (options.check && (!options.tune.empty() || options.batch != 1)) {
    fail_usage("bench: --check goes with neither --tune nor -b");
  }
  if (!options.against.empty()) {
    if (!options.check) fail_usage("--against goes with --check");
    check_backend_flag("--against", options.against);
  }
  options.random.check();
  if (options.random.wanted() != options.model.model.empty()) {
    fail_usage("bench: give either -m DIR or --random SHAPE");
  }
}

struct Measurement {
  std::string test;
  std::int64_t batch = 1;
  std::int64_t depth = 0;
  double tps = 0;
  double tps_stddev = 0;
  std::vector<double> tps_runs;  // in the order in which they ran
};

// A batch of sequences of random tokens, and the two things that are timed.
class BenchRun {
 public:
  BenchRun(ModelSession& session, const BenchOptions& options)
      : session_(session), runner_(session), random_(1), row_sampler_(session.backend().threads()) {
    sampling_.temperature = 0;
    if (const auto preset = options.preset.load()) {
      sampling_ = SamplingParams::plain();
      preset->apply(sampling_);
    }
    for (std::int64_t i = 0; i < options.batch; ++i) {
      sequences_.push_back(session.new_sequence());
      samplers_.emplace_back(sampling_);
    }
  }

  // Every sequence as so many random tokens, none of them computed.
  void reset(std::int64_t tokens, std::int64_t reach) {
    std::uniform_int_distribution<std::int32_t> id(0,
                                                   static_cast<std::int32_t>(session_.vocab()) - 1);
    for (Sequence& sequence : sequences_) {
      runner_.truncate(sequence, 0);
      sequence.reach = reach;
      sequence.ids.resize(static_cast<std::size_t>(tokens));
      for (std::int32_t& token : sequence.ids) token = id(random_);
    }
  }

  // Computes the first `tokens` tokens of every sequence; the last step gives the logits of their
  // last ones, so that a prefill does what an answer needs and no more.
  void prefill(std::int64_t tokens) {
    while (true) {
      std::vector<StepItem> plan;
      std::int64_t room = session_.step_tokens();
      for (Sequence& sequence : sequences_) {
        const std::int64_t count = std::min(tokens - sequence.cached, room);
        if (count <= 0) continue;
        const bool last = sequence.cached + count == tokens;
        plan.push_back({&sequence, count, last ? LogitRows::kLast : LogitRows::kNone});
        room -= count;
      }
      if (plan.empty()) break;
      check_interrupt();
      runner_.run(plan);
    }
    session_.backend().synchronize();
  }

  // So many steps, greedy without a preset, each fed the token of the one before, which is enqueued
  // before that is known where the engine would do so. Starts from whatever token comes next; its
  // value does not matter to the time.
  void decode(std::int64_t steps) {
    for (Sequence& sequence : sequences_) sequence.ids.push_back(0);
    std::vector<StepItem> plan;
    for (Sequence& sequence : sequences_) {
      plan.push_back(
          {&sequence, 1, LogitRows::kLast, device_sampleable(sampling_) ? &sampling_ : nullptr});
    }
    std::vector<RowTask> tasks(sequences_.size());
    if (steps > 0) runner_.start(plan);
    for (std::int64_t left = steps - 1; left >= 0; --left) {
      check_interrupt();
      const bool ahead = left > 0 && session_.backend().runs_ahead() && runner_.repeat(plan);
      const StepOutput output = runner_.take();
      for (std::size_t i = 0; i < sequences_.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i);
        tasks[i].id = output.chose(row) ? output.ids[i] : -1;
        if (output.chose(row)) continue;
        if (output.lost(row)) fail(ErrorCode::kInvalidArgument, "a row of logits holds NaN");
        tasks[i].logits = output.logits.row(row);
        tasks[i].sampler = &samplers_[i];
        tasks[i].history = sequences_[i].ids;
      }
      row_sampler_.run(tasks);
      for (std::size_t i = 0; i < sequences_.size(); ++i) {
        if (tasks[i].error) throw Error(*tasks[i].error);
        sequences_[i].ids.push_back(tasks[i].id);
        sequences_[i].cached += ahead ? 1 : 0;
      }
      if (!ahead && left > 0) runner_.start(plan);
    }
  }

 private:
  ModelSession& session_;
  StepRunner runner_;
  std::mt19937 random_;
  SamplingParams sampling_ = SamplingParams::plain();
  RowSampler row_sampler_;
  std::vector<SamplerChain> samplers_;
  std::vector<Sequence> sequences_;
};

template <class Prepare, class Timed>
void repeat(Measurement& result, std::int64_t tokens, std::int64_t repetitions, Prepare&& prepare,
            Timed&& timed) {
  std::vector<double>& rates = result.tps_runs;
  Progress progress(result.test, repetitions + 1, Progress::Unit::kItems);
  for (std::int64_t i = 0; i <= repetitions; ++i) {
    prepare();
    const auto start = Clock::now();
    timed();
    const double seconds = seconds_since(start);
    if (i > 0) rates.push_back(static_cast<double>(tokens * result.batch) / seconds);
    progress.update(i + 1);
  }
  double sum = 0;
  for (const double rate : rates) sum += rate;
  result.tps = sum / static_cast<double>(rates.size());
  double square = 0;
  for (const double rate : rates) square += (rate - result.tps) * (rate - result.tps);
  result.tps_stddev =
      rates.size() > 1 ? std::sqrt(square / static_cast<double>(rates.size() - 1)) : 0.0;
}

struct BenchResults {
  std::vector<Measurement> tests;
  std::vector<StepProfile> profiles;  // of the same tests, if they were asked for
};

BenchResults measure(const BenchOptions& options, ModelSession& session) {
  BenchResults results;
  BenchRun run(session, options);
  const std::int64_t reach = options.longest() + 1;
  const auto test = [&](const std::string& name, std::int64_t tokens, std::int64_t depth,
                        std::int64_t prepared, const std::function<void()>& timed) {
    Measurement& result = results.tests.emplace_back();
    result.test = name;
    result.batch = options.batch;
    result.depth = depth;
    const auto prepare = [&] {
      run.reset(prepared, reach);
      if (depth > 0) run.prefill(depth);
    };
    repeat(result, tokens, options.repetitions, prepare, timed);
    if (options.profile) {
      results.profiles.push_back(profile_steps(session, name, prepare, timed));
    }
  };
  if (options.prompt > 0) {
    const std::int64_t end = options.prefill_depth() + options.prompt;
    test(fmt::format("pp{}", options.prompt), options.prompt, options.prefill_depth(), end,
         [&] { run.prefill(end); });
  }
  if (options.generate > 0) {
    test(fmt::format("tg{}", options.generate), options.generate, options.decode_depth(),
         options.decode_depth(), [&] { run.decode(options.generate); });
  }
  return results;
}

// What the backend counted, or the plan where its memory is the host's.
std::uint64_t device_peak(const ModelSession& session) {
  const std::size_t peak = session.backend().memory_use().peak;
  return peak > 0 ? peak : session.plan().total();
}

// `load_seconds`: from opening the files until the first token could be computed.
// `random`: what was made of a random model; else null.
Json to_json(const BenchResults& results, ModelSession& session, double load_seconds,
             const Json& random) {
  Json list = Json::array();
  for (const Measurement& result : results.tests) {
    list.push_back({{"test", result.test},
                    {"batch", result.batch},
                    {"depth", result.depth},
                    {"tps", result.tps},
                    {"tps_stddev", result.tps_stddev},
                    {"tps_runs", result.tps_runs},
                    {"peak_device_bytes", device_peak(session)},
                    {"planned_device_bytes", session.plan().total()},
                    {"planned_work_bytes", session.plan().work},
                    {"peak_work_bytes", session.work_peak()},
                    {"peak_host_bytes", peak_host_memory()},
                    {"load_seconds", load_seconds},
                    {"weight_bytes", session.plan().weights},
                    {"embedding_bytes", session.model().embedding_bytes()},
                    {"kv_token_bytes", session.cache().page_bytes() / kPageSlots},
                    {"backend", session.backend().description()}});
    if (!random.is_null()) list.back()["random_model"] = random;
  }
  const Json profiles = profiles_json(results.profiles);
  for (std::size_t i = 0; i < profiles.size(); ++i) list[i]["profile"] = profiles[i];
  return list;
}

std::string to_table(const BenchOptions& options, const BenchResults& results,
                     const ModelSession& session, double load_seconds) {
  const std::string name = options.random.wanted() ? options.random.name() : options.model.model;
  std::string text = fmt::format("{}\n{}: {}\n\n| {:<10} | {:>5} | {:>6} | {:>20} |\n", name,
                                 session.backend().name(), session.backend().description(), "test",
                                 "batch", "depth", "tok/s");
  text += fmt::format("| {:-<10} | {:->4}: | {:->5}: | {:->19}: |\n", "", "", "", "");
  for (const Measurement& result : results.tests) {
    text += fmt::format("| {:<10} | {:>5} | {:>6} | {:>11.2f} ± {:>6.2f} |\n", result.test,
                        result.batch, result.depth, result.tps, result.tps_stddev);
  }
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 0x1p20; };
  return text +
         fmt::format("\nloaded in {:.2f} s, {:.2f} GB/s of weights\n", load_seconds,
                     static_cast<double>(session.plan().weights) * 1e-9 / load_seconds) +
         fmt::format("model, cache and work space {:.1f} MiB{}, peak resident {:.1f} MiB\n",
                     mib(session.plan().total()),
                     session.backend().reads_host_memory()
                         ? std::string()
                         : fmt::format(" planned, {:.1f} MiB taken, {:.1f} of {:.1f} MiB "
                                       "of work space used",
                                       mib(device_peak(session)), mib(session.work_peak()),
                                       mib(session.plan().work)),
                     mib(peak_host_memory())) +
         profile_tables(results.profiles);
}

// What a card chooses by its number of tokens, measured anew.
void tune(BenchOptions& options) {
  SessionOptions session_options = options.model.session_options(!options.random.wanted());
  {
    const auto backend = open_backend(session_options.backend, {});
    session_options.sequences = tuning_sequences(*backend);
    if (session_options.sequences == 0) {
      fail_usage("bench: --tune: {} chooses nothing by measured tables; cuda does",
                 backend->name());
    }
  }
  session_options.longest = kPageSlots;
  session_options.pages = static_cast<std::int32_t>(session_options.sequences);
  session_options.context = kPageSlots;
  session_options.with_text = false;
  if (options.random.wanted()) {
    session_options.opened = options.random.open(options.model.archs).opened;
  }
  const std::unique_ptr<ModelSession> session = load_session(session_options, CacheCheck::kSkip);
  const std::vector<TunedChoice> tuned = tune_launches(*session, options.repetitions);
  const Json plan = launch_plan_json(tuned);
  write_file_atomically(options.tune, json_text(plan, 2) + "\n");
  if (options.json) {
    write_json(plan);
  } else {
    write_result(tuning_table(tuned));
  }
  log_info("written to {}; built in as {}.json it decides on cards like this one", options.tune,
           session->backend().launch_plan_name());
}

void require_close(const StepCheck& check, const std::string& what) {
  if (check.apart <= kMostApart) return;
  fail(ErrorCode::kDevice, "{} are {:.1f} % apart, should be {} % at most", what, 100 * check.apart,
       100 * kMostApart);
}

// Compares with another backend, where that is asked for, beside the steps of the session's own.
void check_logits(const BenchOptions& options, const SessionOptions& session_options) {
  const std::unique_ptr<ModelSession> session = load_session(session_options, CacheCheck::kSkip);
  const std::vector<StepCheck> checks = check_steps(*session);
  Json json = step_checks_json(checks);
  std::string text = step_check_table(checks);
  std::optional<StepCheck> backends;
  if (!options.against.empty()) {
    SessionOptions other = session_options;
    other.backend = options.against;
    backends = check_backends(*session, *load_session(other, CacheCheck::kSkip));
    json.push_back(step_checks_json({&*backends, 1}).at(0));
    json.back()["against"] = options.against;
    text += fmt::format("against {:<8}   {:.4f} % (position {})\n", options.against,
                        100 * backends->apart, backends->position);
  }
  if (options.json) {
    write_json(json);
  } else {
    write_result(text);
  }
  const StepCheck worst = furthest_apart(checks);
  const std::string_view name = session->backend().name();
  require_close(worst, fmt::format("{}: logits of steps of {} tokens and those of a prompt", name,
                                   worst.tokens));
  if (backends) {
    require_close(*backends, fmt::format("logits of {} and of {}", name, options.against));
  }
}

void bench(BenchOptions& options) {
  check(options);
  if (!options.tune.empty()) return tune(options);
  options.preset.load();  // a wrong one shows before the model loads
  // The context is what the tests need: no flag has to be given for them.
  if (options.model.context == 0) options.model.context = options.longest() + 1;
  SessionOptions session_options = options.model.session_options(!options.random.wanted());
  session_options.longest = options.longest() + 1;
  session_options.pages =
      KvCache::pages_for(options.longest() + 1) * static_cast<std::int32_t>(options.batch);
  session_options.sequences = options.batch;
  session_options.with_text = false;
  Json made;
  if (options.random.wanted()) {
    const std::string& archs = options.model.archs;
    const OpenedRandomModel random =
        options.check ? options.random.open_level(archs) : options.random.open(archs);
    session_options.opened = random.opened;
    made = random.summary.json();
  }
  if (options.check) return check_logits(options, session_options);
  const auto start = Clock::now();
  const std::unique_ptr<ModelSession> session = load_session(session_options, CacheCheck::kSkip);
  session->backend().synchronize();
  const double load_seconds = seconds_since(start);
  const BenchResults results = measure(options, *session);
  if (options.json) {
    write_json(to_json(results, *session, load_seconds, made));
  } else {
    write_result(to_table(options, results, *session, load_seconds));
  }
}

}  // namespace

Command bench_command() {
  return make_command<BenchOptions>(
      {"bench",
       "(-m DIR | --random SHAPE) [-p N] [-n N] [-b N] [-d N] [-r N]",
       "Speed of prefill and decode, in tokens per second",
       {{"Read 512 tokens, write 128, both five times", "bitloom bench -m DIR"},
        {"16 sequences at once, each 4096 tokens long already",
         "bitloom bench -m DIR -p 0 -n 128 -b 16 -d 4096"},
        {"A random model of the shape of another, when its files are not here",
         "bitloom bench --random llama3-8b --format exl2 --bpw 4"}}},
      bench);
}

}  // namespace bl
