#pragma once
// How many guessed tokens pay. Pure: measured numbers in, numbers out; tested without a model.
//
// A guess is one more row of a step. It is worth the chance that all guesses up to it are right,
// and it costs what the step takes longer. So of all sequences' guesses the likeliest are taken, as
// many as give the most tokens a second; that may be none.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/draft_source.h"

namespace bl {

// What steps of so many rows take, learnt from those that were made.
class StepTimes {
 public:
  void add(std::int64_t rows, double seconds);
  // Between measured numbers of rows in proportion; beyond them as if a row cost little, so that it
  // is tried.
  double at(std::int64_t rows) const;
  // Whether about so many rows were measured lately.
  bool knows(std::int64_t rows) const;
  // The most rows that were ever measured.
  std::int64_t most_rows() const { return static_cast<std::int64_t>(means_.size()) - 1; }

 private:
  static constexpr std::int64_t kMostRows = 1024;
  struct Mean {
    double seconds = 0;
    std::int64_t count = 0;
    std::int64_t clock = 0;  // when it was measured last
  };
  std::vector<Mean> means_;  // by rows
  std::int64_t clock_ = 0;
};

// How often guesses were right: shares that forget.
class DraftRecord {
 public:
  // The chance of a guess whose predecessors were right; `usual` is what others had.
  double rate(std::size_t confidence, double usual) const;
  void add(std::size_t confidence, std::int64_t drafted, std::int64_t accepted, double keep);

 private:
  struct Share {
    double right = 0;
    double tried = 0;
  };
  std::array<Share, kDraftConfidences> shares_{};
};

// One sequence's state.
struct DraftHabit {
  DraftRecord record;
  double idle = 0;   // steps without a guess since the last one
  double wait = 16;  // … after which one is tried
};

class DraftPolicy {
 public:
  // `fixed`: always so many guesses where there are any; 0: as many as pay, up to kMost.
  explicit DraftPolicy(std::int64_t fixed = 0) : fixed_(fixed) {}
  static constexpr std::int64_t kMost = 16;
  std::int64_t most() const { return fixed_ > 0 ? fixed_ : kMost; }

  struct Candidate {
    DraftHabit* habit = nullptr;
    std::size_t confidence = 0;
    std::int64_t most = 0;     // guesses that there are, or could be made
    std::int64_t left = 1024;  // tokens that may come until it ends
    std::int64_t rows = 1;     // that each guess takes
    // What the first guess costs beside its round: the text is to be read by a draft.
    double entry_seconds = 0;
    std::int64_t count = 0;  // the outcome
  };
  // `rows`: of the step without guesses; `guides` of them are second ones of guided answers, and
  // give no tokens. `round_seconds`, `fixed_seconds`: DraftSource's. `is_free`: guesses exist
  // already and are compared whether or not they are verified, so nothing is tried for its own
  // sake.
  struct PlanArgs {
    std::int64_t rows = 0;
    std::int64_t guides = 0;
    double round_seconds = 0;
    double fixed_seconds = 0;
    bool is_free = false;
    // Of making so many guesses for each.
    double seconds_of(std::int64_t guesses) const {
      return guesses > 0 ? fixed_seconds + static_cast<double>(guesses) * round_seconds : 0;
    }
    // Of a step without guesses; a guide may be in one without its answer.
    double tokens() const { return static_cast<double>(rows > guides ? rows - guides : 1); }
  };
  void plan(std::span<Candidate> candidates, const PlanArgs& args);

  // The chance of a sequence's guess whose predecessors were right. Where nothing is known, a fair
  // one as long as there is something to lose, and none after that.
  double rate(const DraftHabit& habit, std::size_t confidence) const {
    return habit.record.rate(confidence, all_.rate(confidence, budget_ >= 0 ? kFirstRate : 0.0));
  }
  void measured_step(std::int64_t rows, double seconds) { times_.add(rows, seconds); }
  // A step of `rows` sequences, `guides` as above, has come to its end in which guesses took
  // `draft_rows` more to be verified, and `draft_seconds` to be made.
  struct StepArgs {
    std::int64_t rows = 0;
    std::int64_t guides = 0;
    std::int64_t draft_rows = 0;
    std::int64_t accepted = 0;
    double draft_seconds = 0;
  };
  void step_done(const StepArgs& step);
  void measured(DraftHabit& habit, std::size_t confidence, std::int64_t drafted,
                std::int64_t accepted);

 private:
  static constexpr double kFirstRate = 0.5;    // until something is known
  static constexpr double kFirstBudget = 0.5;  // of a step without guesses
  bool pays_entry(const Candidate& candidate, double plain_token, double best_token) const;
  double price_of_trying(const Candidate& candidate, const PlanArgs& args) const;
  void try_some(std::span<Candidate> candidates, const PlanArgs& args);
  bool could_pay(std::span<const Candidate> candidates, const PlanArgs& args) const;

  std::int64_t fixed_;
  std::int64_t trials_ = 0;  // guesses that were verified
  StepTimes times_;
  DraftRecord all_;
  // What guesses may still cost more than they bring, in steps without them: a small share of all
  // steps, less what they have cost, plus what they have brought.
  double budget_ = kFirstBudget;
  struct Guess {
    double chance = 0;
    std::size_t candidate = 0;
    std::int64_t depth = 0;
  };
  std::vector<Guess> guesses_;
};

}  // namespace bl
