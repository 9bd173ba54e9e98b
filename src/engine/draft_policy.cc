#include "engine/draft_policy.h"

#include <algorithm>
#include <cmath>

namespace bl {
namespace {

// The weight of a new measurement of a step.
constexpr double kNewStep = 0.2;
// A measurement is old after this many other steps.
constexpr std::int64_t kOldSteps = 256;
// The share by which one more row makes a step longer, until it was measured.
constexpr double kGuessedRow = 0.1;
// A smaller gain is noise.
constexpr double kLeastGain = 1.03;
// Verified guesses after which a sequence's own record outweighs that of the others.
constexpr double kUsualWeight = 2;
constexpr double kKeepOwn = 0.85;
constexpr double kKeepAll = 0.98;
constexpr double kHighestRate = 0.98;
// How many guesses are made at a time only to see whether they are right, and the steps between
// two such trials.
constexpr std::int64_t kTried = 2;
constexpr double kShortestWait = 16;
constexpr double kLongestWait = 512;
// A draft that has read a text makes this many guesses before it is judged. The first one alone is
// often wrong by chance, which would keep a good draft from guessing for some hundred tokens.
constexpr std::int64_t kFirstTrials = 5;
// The share of all steps that guessing may lose, and how many steps of that may be saved up.
constexpr double kLostShare = 0.015;
constexpr double kMostBudget = 8;
// How much a step counts towards the next trial where guesses would not pay even if they were
// right, since costs may change.
constexpr double kHopeless = 1.0 / 32;

}  // namespace

void StepTimes::add(std::int64_t rows, double seconds) {
  if (rows < 1 || rows > kMostRows || !(seconds > 0)) return;
  const auto index = static_cast<std::size_t>(rows);
  if (means_.size() <= index) means_.resize(index + 1);
  Mean& mean = means_[index];
  // The first steps of a kind are slower than others, since caches and pages are cold.
  const double weight = mean.count < 4 ? 1.0 / static_cast<double>(mean.count + 1) : kNewStep;
  // A single step that was held up must not decide.
  const double capped = mean.count > 0 ? std::min(seconds, 3 * mean.seconds) : seconds;
  mean.seconds += weight * (capped - mean.seconds);
  ++mean.count;
  mean.clock = ++clock_;
}

bool StepTimes::knows(std::int64_t rows) const {
  const std::int64_t reach = rows / 8;
  for (std::int64_t r = std::max<std::int64_t>(1, rows - reach); r <= rows + reach; ++r) {
    if (r >= static_cast<std::int64_t>(means_.size())) break;
    const Mean& mean = means_[static_cast<std::size_t>(r)];
    if (mean.count > 0 && clock_ - mean.clock < kOldSteps) return true;
  }
  return false;
}

double StepTimes::at(std::int64_t rows) const {
  const auto size = static_cast<std::int64_t>(means_.size());
  const auto mean = [&](std::int64_t r) -> const Mean& {
    return means_[static_cast<std::size_t>(r)];
  };
  std::int64_t below = std::min(rows, size - 1);
  while (below > 0 && mean(below).count == 0) --below;
  std::int64_t above = rows;
  while (above < size && mean(above).count == 0) ++above;
  if (below == rows && rows > 0) return mean(rows).seconds;
  if (below <= 0 && above >= size) return 0;
  if (below <= 0) return mean(above).seconds;
  if (above >= size) {
    return mean(below).seconds * (1 + kGuessedRow * static_cast<double>(rows - below));
  }
  const double share = static_cast<double>(rows - below) / static_cast<double>(above - below);
  return mean(below).seconds + share * (mean(above).seconds - mean(below).seconds);
}

double DraftRecord::rate(std::size_t confidence, double usual) const {
  const Share& share = shares_[confidence];
  return std::min(kHighestRate,
                  (share.right + kUsualWeight * usual) / (share.tried + kUsualWeight));
}

void DraftRecord::add(std::size_t confidence, std::int64_t drafted, std::int64_t accepted,
                      double keep) {
  Share& share = shares_[confidence];
  // Guesses behind a wrong one were not tried.
  const auto tried = static_cast<double>(accepted + (accepted < drafted ? 1 : 0));
  const double kept = std::pow(keep, tried);
  share.right = share.right * kept + static_cast<double>(accepted);
  share.tried = share.tried * kept + tried;
}

void DraftPolicy::measured(DraftHabit& habit, std::size_t confidence, std::int64_t drafted,
                           std::int64_t accepted) {
  habit.record.add(confidence, drafted, accepted, kKeepOwn);
  all_.add(confidence, drafted, accepted, kKeepAll);
  trials_ += drafted;
}

void DraftPolicy::step_done(const StepArgs& step) {
  const double plain = times_.at(step.rows);
  if (step.rows < 1 || plain <= 0) return;
  // Steps of that size on average, since the time of a single step is noisy.
  const double cost = (times_.at(step.rows + step.draft_rows) - plain + step.draft_seconds) / plain;
  const auto answers = static_cast<double>(std::max<std::int64_t>(step.rows - step.guides, 1));
  const double gain = static_cast<double>(step.accepted) / answers;
  budget_ = std::min(budget_ + kLostShare + gain - cost, kMostBudget);
}

// Whether guessing until the sequence ends gains more than reading its text costs.
bool DraftPolicy::pays_entry(const Candidate& candidate, double plain_token,
                             double best_token) const {
  const double gained = static_cast<double>(candidate.left) * (plain_token - best_token);
  return candidate.entry_seconds <= 0 || gained > candidate.entry_seconds;
}

void DraftPolicy::plan(std::span<Candidate> candidates, const PlanArgs& args) {
  for (Candidate& candidate : candidates) {
    candidate.most = std::min(candidate.most, most());
    candidate.count = fixed_ > 0 ? candidate.most : 0;
  }
  if (fixed_ > 0) return;
  // A step without guesses has to be measured first, and again now and then.
  if (!times_.knows(args.rows)) return;
  list_guesses(candidates, args);
  const double plain_token = times_.at(args.rows) / args.tokens();
  const double best = take_guesses(candidates, args, kLeastGain / plain_token);
  for (Candidate& candidate : candidates) {
    if (!pays_entry(candidate, plain_token, 1 / best)) candidate.count = 0;
  }
  if (!args.is_free) try_some(candidates, args);
}

// All guesses that could be taken, those that are worth most per row first.
void DraftPolicy::list_guesses(std::span<const Candidate> candidates, const PlanArgs& args) {
  // A cost that is not known yet is approached in small steps.
  const bool is_first = !args.is_free && args.seconds_of(1) <= 0;
  guesses_.clear();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    const double right = rate(*candidate.habit, candidate.confidence);
    double chance = 1;
    const std::int64_t most = is_first ? std::min<std::int64_t>(candidate.most, 1) : candidate.most;
    for (std::int64_t depth = 1; depth <= most; ++depth) {
      guesses_.push_back({chance *= right, i, depth});
    }
  }
  const auto worth = [&](const Guess& guess) {
    return guess.chance / static_cast<double>(candidates[guess.candidate].rows);
  };
  std::sort(guesses_.begin(), guesses_.end(), [&](const Guess& a, const Guess& b) {
    if (worth(a) != worth(b)) return worth(a) > worth(b);
    return a.depth != b.depth ? a.depth < b.depth : a.candidate < b.candidate;
  });
}

// Takes as many of the guesses as give the most tokens per second, if that is more than `least`.
// Returns that rate.
double DraftPolicy::take_guesses(std::span<Candidate> candidates, const PlanArgs& args,
                                 double least) {
  const std::int64_t reach = std::max({kTried, args.rows, 2 * (times_.most_rows() - args.rows)});
  double best = least;
  double tokens = args.tokens();
  std::size_t taken = 0;
  std::int64_t rounds = 0;
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < guesses_.size(); ++i) {
    rows += candidates[guesses_[i].candidate].rows;
    if (rows > reach) break;
    tokens += guesses_[i].chance;
    rounds = std::max(rounds, guesses_[i].depth);
    const double seconds = times_.at(args.rows + rows) + args.seconds_of(rounds);
    if (tokens / seconds <= best) continue;
    best = tokens / seconds;
    taken = i + 1;
  }
  for (std::size_t i = 0; i < taken; ++i) ++candidates[guesses_[i].candidate].count;
  return best;
}

// Whether guesses would pay if nearly all of them were right.
bool DraftPolicy::could_pay(std::span<const Candidate> candidates, const PlanArgs& args) const {
  double tokens = args.tokens();
  const double none = tokens / times_.at(args.rows);
  double chance = 1;
  std::int64_t rows = args.rows;
  for (std::int64_t depth = 1; depth <= most(); ++depth) {
    chance *= kHighestRate;
    for (const Candidate& candidate : candidates) {
      if (candidate.most < depth) continue;
      tokens += chance;
      rows += candidate.rows;
    }
    const double seconds = times_.at(rows) + args.seconds_of(depth);
    if (tokens / seconds > kLeastGain * none) return true;
  }
  return false;
}

// The cost of trying the candidate's guesses, in steps without guesses.
double DraftPolicy::price_of_trying(const Candidate& candidate, const PlanArgs& args) const {
  const std::int64_t count = std::min(candidate.most, kTried);
  const double plain = times_.at(args.rows);
  return (times_.at(args.rows + count * candidate.rows) - plain + candidate.entry_seconds +
          args.seconds_of(count)) /
         plain;
}

// Has some guesses verified that are not expected to pay: a sequence whose guesses were wrong may
// have reached a place where they are right.
void DraftPolicy::try_some(std::span<Candidate> candidates, const PlanArgs& args) {
  const bool may_pay = could_pay(candidates, args);
  const double step = may_pay ? 1 : kHopeless;
  std::int64_t first = may_pay && trials_ > 0 ? kFirstTrials - trials_ : 0;
  for (Candidate& candidate : candidates) {
    DraftHabit& habit = *candidate.habit;
    if (candidate.count > 0) {
      habit.idle = 0;
      habit.wait = kShortestWait;
    } else if (first > 0 && candidate.most > 0 && candidate.entry_seconds <= 0) {
      --first;
      candidate.count = 1;
    } else if ((habit.idle += step) >= habit.wait && candidate.most > 0 &&
               price_of_trying(candidate, args) <= budget_) {
      habit.idle = 0;
      habit.wait = std::min(habit.wait * 2, kLongestWait);
      candidate.count = std::min(candidate.most, kTried);
    }
  }
}

}  // namespace bl
