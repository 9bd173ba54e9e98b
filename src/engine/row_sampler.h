#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/request.h"
#include "sample/constraint.h"
#include "sample/sampler_chain.h"
#include "sample/token_log_probability.h"

namespace bl {

class ThreadPool;

// One row of logits, and what is wanted of it.
struct RowTask {
  std::span<const float> logits;             // [vocab]
  std::span<const float> negative;           // the same behind the negative prompt; else empty
  SamplerChain* sampler = nullptr;           // null: nothing is to be chosen
  std::span<const std::int32_t> history;     // the text so far
  std::span<const std::int32_t> end_tokens;  // the model's
  std::span<const std::int32_t> barred;      // may not follow here
  std::span<const std::uint32_t> mask;       // may follow, as PickArgs has it; empty: all
  Constraint* constraint = nullptr;          // gives the mask, and is told what was chosen
  const TokenHook* hook = nullptr;           // has the last word about the token
  bool shows_candidates = false;             // … and sees what it was drawn from
  std::int32_t choice = 0;                   // … which it is told
  std::int64_t generated = 0;                // tokens of the answer so far
  std::int32_t known = -1;                   // the token that follows, where nothing is chosen
  // Behind a guess: this row means something only if the task before it, of the same sampler, has
  // chosen this token. −1: it stands for itself.
  std::int32_t follows = -1;
  std::int32_t alternatives = -1;  // log-probabilities beside the token's; −1: none
  bool after_chain = false;        // … of the distribution that the sampler draws from

  // The outcome. A task that has its id before is done: the model has chosen.
  std::int32_t id = -1;               // −1: not chosen
  bool satisfied = false;             // the constraint is, and nothing can follow
  std::optional<SamplerState> state;  // the sampler's afterwards, where tasks follow each other
  TokenLogprobs logprobs;
  std::optional<Error> error;  // where the row cannot be used
};

// Chooses the tokens of a step's rows, each by its own sampler: on `threads` where there is more
// than a little to do, those with a hook on the caller's thread alone. A row that is damaged spoils
// no other. Rows behind guesses are drawn one after another, up to the first wrong guess.
class RowSampler {
 public:
  // `tokens`: of a row, that may be chosen: those beyond stand for no text.
  explicit RowSampler(ThreadPool* threads,
                      std::size_t tokens = std::numeric_limits<std::size_t>::max());
  void run(std::span<RowTask> tasks);

 private:
  // What a thread works in.
  struct Room {
    SampleRow row;
    TopLogProbabilities best;
    std::vector<float> guided;
    std::vector<TokenProbability> candidates;  // of the last pick that was to show them
  };
  void choose(RowTask& task, Room& room) const;
  static std::int32_t pick(const RowTask& task, const PickArgs& args, Room& room);
  static std::span<const TokenProbability> find_candidates(const RowTask& task, Room& room);
  void choose_or_tell(RowTask& task, Room& room) const;
  // A task and those that follow it.
  void choose_in_order(std::span<RowTask> tasks, Room& room) const;

  ThreadPool* threads_;
  std::size_t tokens_;
  std::vector<Room> rooms_;
  std::vector<std::size_t> heads_;   // tasks that stand for themselves
  std::vector<std::size_t> hooked_;  // … whose tokens a hook sees
};

}  // namespace bl
