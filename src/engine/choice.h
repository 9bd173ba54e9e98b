#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/answer_text.h"
#include "engine/draft_policy.h"
#include "engine/draft_source.h"
#include "engine/event_stream.h"
#include "engine/held_answer.h"
#include "engine/prompt_healing.h"
#include "engine/request.h"
#include "engine/sequence.h"
#include "engine/token_counts.h"
#include "model/step_batch.h"
#include "sample/constraint.h"
#include "sample/sampler_chain.h"

namespace bl {

using EngineClock = std::chrono::steady_clock;
inline double seconds_between(EngineClock::time_point begin, EngineClock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// A request that the engine has accepted. Its lists are prepared (sampling_params.h), and shared by
// its answers.
struct OpenRequest {
  std::int32_t choices() const { return static_cast<std::int32_t>(request.sampling.answers()); }
  // Where the events of a choice go.
  EventStream& sink() const { return held ? *held : *stream; }

  Request request;
  std::int64_t number = 0;  // among all of its engine
  std::shared_ptr<EventStream> stream;
  // With best_of: what all choices have given, until it is known which are the best.
  std::unique_ptr<EventStream> held{};
  std::vector<double> scores{};  // of the choices that are over
  double rank = 0;
  std::string salt;          // of its pages
  AdapterMix adapters;       // stay loaded as long as this
  std::int64_t longest = 0;  // tokens a sequence of it may come to
  bool by_limit = false;     // `longest` is the request's own limit, not the context's
  AnswerRules rules{};
  std::vector<std::unique_ptr<Constraint>> constraints{};  // one a choice, until they take them
  std::shared_ptr<const HealedPrompt> healed{};            // null: the prompt stays as it is
  // With guidance: the text beside each answer's, and how many tokens it is longer.
  std::vector<std::int32_t> negative{};
  std::int64_t beyond = 0;
  std::int32_t open_choices = 0;
  std::shared_ptr<void> counted{};  // among what the queue holds, as long as it is there
  EngineClock::time_point submitted;
  std::optional<EngineClock::time_point> deadline;
};

// How an answer's next tokens are guessed.
struct DraftState {
  std::unique_ptr<DraftMemory> memory;  // of the source
  DraftHabit habit;
  std::vector<std::int32_t> ids;  // guesses of the present step
  std::int64_t count = 0;         // of them, that are verified
  std::size_t confidence = 0;
  bool recorded = false;     // the present round, in Choice::draft_rounds
  std::int64_t same = 0;     // of the text's tokens, that the source knows
  std::int64_t unread = -1;  // DraftSource::unread(), before the first guess; −1: not asked yet
};

// One answer being made: the engine's state for one sequence of a request.
struct Choice {
  Choice(std::shared_ptr<OpenRequest> from, std::int32_t number, PagePool& pool)
      : open(std::move(from)),
        index(number),
        sequence(pool),
        sampler({open, &open->request.sampling},
                seed_of_answer(open->request.sampling.seed, number)) {
    sequence.ids = open->request.prompt;
    sequence.reach = open->longest + open->beyond;
    usage.prompt_tokens = static_cast<std::int64_t>(sequence.ids.size());
    if (!open->constraints.empty()) {
      constraint = std::move(open->constraints[static_cast<std::size_t>(number)]);
    }
    if (!open->healed) return;
    sequence.ids.resize(open->healed->kept());
    healing.prompt = open->healed;
  }

  // Of the text; guesses may stand behind it while a step is being computed.
  std::int64_t length() const { return static_cast<std::int64_t>(sequence.ids.size()) - drafted; }
  // Tokens of the text that do not count as generated.
  std::int64_t prompt_tokens() const {
    if (main != nullptr) return static_cast<std::int64_t>(open->negative.size());
    if (healing.prompt) {
      return static_cast<std::int64_t>(healing.prompt->kept()) + healing.tokens;
    }
    return static_cast<std::int64_t>(open->request.prompt.size());
  }
  std::int64_t generated() const { return length() - prompt_tokens(); }
  // Cuts the text to `tokens`, not fewer than the prompt's: of what was generated, or drafted, the
  // rest never was. The last token that stays is computed (again), for the logits behind it. What
  // else depends on the text (sampler.restore(), text) is the caller's.
  void truncate(PrefixCache& cache, std::int64_t tokens) {
    draft.same = std::min(draft.same, tokens);
    shared_beginning = {};
    sequence.ids.resize(static_cast<std::size_t>(tokens));
    sequence.cached = cache.truncate(sequence.pages, cursor, std::min(sequence.cached, tokens - 1));
  }
  // With guidance both texts go on with the answer's guesses.
  void append_drafts() {
    const std::vector<std::int32_t>& ids = main != nullptr ? main->draft.ids : draft.ids;
    sequence.ids.insert(sequence.ids.end(), ids.begin(), ids.begin() + draft.count);
    drafted = draft.count;
  }
  void remove_drafts() {
    sequence.ids.resize(sequence.ids.size() - static_cast<std::size_t>(drafted));
    drafted = 0;
  }
  // A step verifies guesses of this answer.
  void begin_draft_round(std::int64_t guesses) {
    usage.drafted_tokens += guesses;
    draft.recorded = guesses > 0 && open->request.record_draft_rounds && main == nullptr &&
                     std::ssize(draft_rounds) < open->longest - prompt_tokens();
    if (draft.recorded) draft_rounds.push_back({static_cast<std::int32_t>(guesses), 0});
  }
  // One of them was right.
  void accept_guess() {
    ++usage.accepted_tokens;
    if (draft.recorded) ++draft_rounds.back().accepted;
  }
  bool wants_prompt_rows() const {
    return index == 0 && main == nullptr && open->request.sampling.prompt_logprobs >= 0 &&
           !prompt_told;
  }
  // The tokens that the answer's text goes on from.
  std::span<const std::int32_t> text_before() const {
    const std::span<const std::int32_t> ids = sequence.ids;
    if (open->request.continues_prompt) return ids;
    return ids.subspan(healing.prompt ? healing.prompt->kept() : open->request.prompt.size());
  }

  std::shared_ptr<OpenRequest> open;
  std::int32_t index;  // of the request's choices
  Sequence sequence;
  PrefixCursor cursor;
  SharedBeginning shared_beginning;  // while it waits
  SamplerChain sampler;
  bool device_sampled = device_sampleable(sampler.params()) && !open->request.after_sampling;
  TokenCounts counts;                      // where the model chooses
  std::unique_ptr<Constraint> constraint;  // null: none
  std::unique_ptr<AnswerText> text;        // null without a tokenizer
  std::unique_ptr<HeldAnswer> held;        // with banned strings
  HealingProgress healing;
  // With guidance: `guide` computes what is steered away from, `main` of that is the answer. The
  // rows of both behind the same token make one choice; the one that came first waits. `rows`:
  // behind the text, and behind each of its guesses; only the first can wait.
  Choice* guide = nullptr;
  Choice* main = nullptr;
  std::vector<std::span<const float>> rows;
  std::vector<float> waiting_row;
  const Choice* leader = nullptr;  // whose prompt it waits for
  std::vector<TokenLogprobs> prompt_logprobs;
  double score = 0;          // Σ log-probability of what was generated, with best_of
  bool prompt_told = false;  // the prompt has been computed once
  bool running = false;
  bool blocked = false;  // in the present step
  bool over = false;
  std::int32_t passed_over = 0;
  DraftState draft;
  std::int64_t drafted = 0;  // of sequence.ids, the last ones, which are guesses
  Usage usage;
  std::vector<DraftRound> draft_rounds;
  EngineClock::time_point admitted;
  EngineClock::time_point first_token;
};

}  // namespace bl
