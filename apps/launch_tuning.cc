#include "launch_tuning.h"

#include <algorithm>
#include <chrono>

#include "base/interrupt.h"
#include "base/json.h"
#include "base/progress.h"
#include "engine/step_runner.h"

namespace bl {
namespace {

using Clock = std::chrono::steady_clock;

// Distance, in tokens per step, between measurements.
constexpr std::int64_t kStride = 8;
// Untimed steps before the timed ones: the first runs without recording, the second may be
// recorded.
constexpr std::int64_t kWarmUp = 3;

// Times steps in which some sequences compute one token each.
class TimedSteps {
 public:
  TimedSteps(ModelSession& session, std::int64_t repetitions)
      : runner_(session), repetitions_(repetitions) {
    greedy_.temperature = 0;
    const std::int64_t reach = kWarmUp + repetitions + 1;
    for (std::int64_t i = 0; i < session.sequences(); ++i) {
      sequences_.push_back(session.new_sequence());
      sequences_.back().reach = reach;
    }
  }

  // Returns the median time of a step with this many sequences.
  double seconds(std::int64_t tokens) {
    std::vector<StepItem> items;
    for (std::int64_t i = 0; i < tokens; ++i) {
      Sequence& sequence = sequences_[static_cast<std::size_t>(i)];
      runner_.truncate(sequence, 0);
      items.push_back(
          {.sequence = &sequence, .count = 1, .logits = LogitRows::kLast, .sampling = &greedy_});
    }
    std::vector<double> times;
    for (std::int64_t step = 0; step < kWarmUp + repetitions_; ++step) {
      check_interrupt();
      for (const StepItem& item : items) item.sequence->ids.push_back(1);
      const auto start = Clock::now();
      runner_.choose(items);
      if (step < kWarmUp) continue;
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

 private:
  StepRunner runner_;
  std::int64_t repetitions_;
  SamplingParams greedy_ = SamplingParams::plain();
  std::vector<Sequence> sequences_;
};

}  // namespace

std::int64_t tuning_sequences(const Backend& backend) {
  std::int64_t most = 0;
  for (const LaunchChoice& choice : backend.launch_choices()) most = std::max(most, choice.most);
  return most;
}

std::vector<TunedChoice> tune_launches(ModelSession& session, std::int64_t repetitions) {
  Backend& backend = session.backend();
  std::vector<TunedChoice> tuned;
  std::int64_t steps = 0;
  for (const LaunchChoice& choice : backend.launch_choices()) {
    tuned.push_back({choice, choice.from, {}});
    steps += (choice.most - choice.least + kStride - 1) / kStride;
  }
  Progress progress("tune", steps, Progress::Unit::kItems);
  std::int64_t done = 0;
  TimedSteps timed(session, repetitions);
  for (TunedChoice& choice : tuned) {
    const LaunchChoice& was = choice.was;
    for (std::int64_t tokens = was.least; tokens < was.most; tokens += kStride) {
      WayTimes times{.tokens = tokens};
      backend.choose_launch(was.name, was.most);
      times.first = timed.seconds(tokens);
      backend.choose_launch(was.name, was.least);
      times.second = timed.seconds(tokens);
      choice.times.push_back(times);
      progress.update(++done);
    }
    choice.best = best_switch(choice.times, was.most);
    backend.choose_launch(was.name, choice.best);
  }
  return tuned;
}

Json launch_plan_json(std::span<const TunedChoice> choices) {
  Json plan = Json::object();
  for (const TunedChoice& choice : choices) plan[choice.was.name] = choice.best;
  return plan;
}

std::string tuning_table(std::span<const TunedChoice> choices) {
  std::string text;
  for (const TunedChoice& choice : choices) {
    if (choice.times.empty()) continue;  // this build or card has only one kernel here
    text += fmt::format(
        "{}: {} (was {})\n\n| {:>6} | {:>9} | {:>9} |\n| {:->5}: | {:->8}: | {:->8}: |\n",
        choice.was.name, choice.best, choice.was.from, "tokens", "below, ms", "from, ms", "", "",
        "");
    for (const WayTimes& t : choice.times) {
      text +=
          fmt::format("| {:>6} | {:>9.3f} | {:>9.3f} |\n", t.tokens, t.first * 1e3, t.second * 1e3);
    }
    text += "\n";
  }
  return text;
}

}  // namespace bl
