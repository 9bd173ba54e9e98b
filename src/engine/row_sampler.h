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

// One row of logits, what is wanted of it, and the outcome; a plain value.
struct RowTask {
  std::span<const float> logits;          // [vocab]
  std::span<const float> negative;        // [vocab] behind the negative prompt; empty: no guidance
  SamplerChain* sampler = nullptr;        // null: no token is to be chosen
  std::span<const std::int32_t> history;  // the text so far
  std::span<const std::int32_t> end_tokens;  // the model's
  std::span<const std::int32_t> barred;      // tokens that must not follow here
  std::span<const std::uint32_t> mask;       // tokens that may (PickArgs::mask); empty: all
  Constraint* constraint = nullptr;          // gives the mask, and is told what was chosen
  const TokenHook* hook = nullptr;           // may replace the token
  bool shows_candidates = false;             // gives the hook SampledToken::candidates
  std::int32_t choice = 0;                   // SampledToken::choice
  std::int64_t generated = 0;                // tokens of the answer so far
  std::uint32_t rewinds = 0;                 // PickArgs::rewinds
  std::int32_t known = -1;                   // without a sampler, the token that follows
  // Behind a guess, the guessed token: the row counts only if the task before it, of the same
  // sampler, has chosen that token. −1: the row counts in any case.
  std::int32_t follows = -1;
  std::int32_t alternatives = -1;  // log-probabilities wanted beside the token's; −1: none at all
  bool after_chain = false;        // log-probabilities of the distribution that is drawn from

  // The outcome. A task whose id is set before is done: the model has chosen.
  std::int32_t id = -1;               // −1: not chosen
  bool satisfied = false;             // the constraint is satisfied, and no token can follow
  std::optional<SamplerState> state;  // the sampler's state behind the token, where tasks follow
  TokenLogprobs logprobs;
  std::optional<Error> error;  // why the row cannot be used
};

// Chooses the tokens of a step's rows, each with its own sampler: on several threads where there is
// enough to do, except rows with a hook, which are chosen on the caller's thread. A damaged row
// affects no other. Rows behind guesses are drawn one after another, up to the first wrong guess.
class RowSampler {
 public:
  // Only the first `tokens` tokens of a row may be chosen; the others stand for no text. `threads`
  // may be null, and must outlive it.
  explicit RowSampler(ThreadPool* threads,
                      std::size_t tokens = std::numeric_limits<std::size_t>::max());
  void run(std::span<RowTask> tasks);

 private:
  // The buffers of one thread.
  struct Room {
    SampleRow row;
    TopLogProbabilities best;
    std::vector<float> guided;
    std::vector<TokenProbability> candidates;  // of the last pick whose hook sees them
  };
  void choose(RowTask& task, Room& room) const;
  static std::int32_t pick(const RowTask& task, const PickArgs& args, Room& room);
  static std::span<const TokenProbability> find_candidates(const RowTask& task, Room& room);
  void choose_or_tell(RowTask& task, Room& room) const;
  // Chooses for a task and those that follow it.
  void choose_in_order(std::span<RowTask> tasks, Room& room) const;

  ThreadPool* threads_;
  std::size_t tokens_;
  std::vector<Room> rooms_;
  std::vector<std::size_t> heads_;   // tasks that follow no other
  std::vector<std::size_t> hooked_;  // those of them that have a hook
};

}  // namespace bl
