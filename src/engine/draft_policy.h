#pragma once
// Decides how many guessed tokens pay. Measured numbers go in and numbers come out, so that it is
// tested without a model.
//
// A guess is one more row of a step. It is worth the chance that all guesses up to it are right,
// and it costs the additional time of the step. So the likeliest guesses of all sequences are
// taken, as many as give the most tokens per second; that may be none.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/draft_source.h"

namespace bl {

// How long steps take by their number of rows, learnt from steps that were made.
class StepTimes {
 public:
  void add(std::int64_t rows, double seconds);
  // Seconds of a step of `rows` rows: interpolated between measured numbers of rows; beyond them a
  // low estimate, so that such steps are tried. 0 where nothing was measured.
  double at(std::int64_t rows) const;
  // Whether a step of about `rows` rows was measured lately.
  bool knows(std::int64_t rows) const;
  // The largest number of rows that was ever measured.
  std::int64_t most_rows() const { return static_cast<std::int64_t>(means_.size()) - 1; }

 private:
  static constexpr std::int64_t kMostRows = 1024;
  struct Mean {
    double seconds = 0;
    std::int64_t count = 0;
    std::int64_t clock = 0;  // clock_ when it was measured last
  };
  std::vector<Mean> means_;  // by number of rows
  std::int64_t clock_ = 0;
};

// How often guesses were right, as shares in which older guesses count less.
class DraftRecord {
 public:
  // The chance that a guess is right whose predecessors were. `usual`: the chance elsewhere, which
  // counts as long as little is known here.
  double rate(std::size_t confidence, double usual) const;
  void add(std::size_t confidence, std::int64_t drafted, std::int64_t accepted, double keep);

 private:
  struct Share {
    double right = 0;
    double tried = 0;
  };
  std::array<Share, kDraftConfidences> shares_{};
};

// What the policy remembers about one sequence.
struct DraftHabit {
  DraftRecord record;
  double idle = 0;   // steps since its last guess
  double wait = 16;  // steps without a guess after which one is tried
};

class DraftPolicy {
 public:
  // `fixed`: verify this many guesses whenever there are any; 0: as many as pay, up to kMost.
  explicit DraftPolicy(std::int64_t fixed = 0) : fixed_(fixed) {}
  static constexpr std::int64_t kMost = 16;
  std::int64_t most() const { return fixed_ > 0 ? fixed_ : kMost; }

  struct Candidate {
    DraftHabit* habit = nullptr;
    std::size_t confidence = 0;
    std::int64_t most = 0;     // guesses that exist, or could be made
    std::int64_t left = 1024;  // tokens that the answer may still get
    std::int64_t rows = 1;     // rows that each guess takes
    // What the first guess costs in addition to its round: a draft has to read the text.
    double entry_seconds = 0;
    std::int64_t count = 0;  // the result of plan(): guesses to verify
  };
  struct PlanArgs {
    std::int64_t rows = 0;     // of the step without guesses
    std::int64_t guides = 0;   // of them, second rows of guided answers, which give no tokens
    double round_seconds = 0;  // DraftSource::round_seconds()
    double fixed_seconds = 0;  // DraftSource::fixed_seconds()
    // Guesses exist already, and are compared with the text whether or not they are verified. So
    // none is verified only to learn from it.
    bool is_free = false;
    // The time for making `guesses` guesses for each sequence.
    double seconds_of(std::int64_t guesses) const {
      return guesses > 0 ? fixed_seconds + static_cast<double>(guesses) * round_seconds : 0;
    }
    // Tokens that the step gives without guesses. It may hold a guide without its answer.
    double tokens() const { return static_cast<double>(rows > guides ? rows - guides : 1); }
  };
  void plan(std::span<Candidate> candidates, const PlanArgs& args);

  // The chance that a sequence's guess is right whose predecessors were. Where nothing is known, it
  // is kFirstRate as long as the budget for trying lasts, and 0 after that.
  double rate(const DraftHabit& habit, std::size_t confidence) const {
    return habit.record.rate(confidence, all_.rate(confidence, budget_ >= 0 ? kFirstRate : 0.0));
  }
  void measured_step(std::int64_t rows, double seconds) { times_.add(rows, seconds); }
  // A step that is over.
  struct StepArgs {
    std::int64_t rows = 0;        // without guesses
    std::int64_t guides = 0;      // as in PlanArgs
    std::int64_t draft_rows = 0;  // rows in which guesses were verified
    std::int64_t accepted = 0;    // guesses that were right
    double draft_seconds = 0;     // the time in which guesses were made
  };
  void step_done(const StepArgs& step);
  void measured(DraftHabit& habit, std::size_t confidence, std::int64_t drafted,
                std::int64_t accepted);

 private:
  static constexpr double kFirstRate = 0.5;    // the chance of a guess until something is known
  static constexpr double kFirstBudget = 0.5;  // in steps without guesses
  void list_guesses(std::span<const Candidate> candidates, const PlanArgs& args);
  double take_guesses(std::span<Candidate> candidates, const PlanArgs& args, double least);
  bool pays_entry(const Candidate& candidate, double plain_token, double best_token) const;
  double price_of_trying(const Candidate& candidate, const PlanArgs& args) const;
  void try_some(std::span<Candidate> candidates, const PlanArgs& args);
  bool could_pay(std::span<const Candidate> candidates, const PlanArgs& args) const;

  std::int64_t fixed_;
  std::int64_t trials_ = 0;  // guesses that were verified
  StepTimes times_;
  DraftRecord all_;
  // What guesses may still cost beyond what they bring, in steps without guesses: a small share of
  // all steps, less what guesses have cost, plus what they have brought.
  double budget_ = kFirstBudget;
  struct Guess {
    double chance = 0;
    std::size_t candidate = 0;
    std::int64_t depth = 0;
  };
  std::vector<Guess> guesses_;
};

}  // namespace bl
