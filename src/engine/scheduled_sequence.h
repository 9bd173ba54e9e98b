#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "cache/page_pool.h"
#include "cache/prefix_cache.h"
#include "engine/open_request.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_model.h"

namespace bl {

class Choice;

// One sequence as the scheduler sees it: its tokens, the pages that hold what is computed of them,
// and whether it runs. An answer has one; a guided answer has a second one (guided_pair.h).
//
// Invariant: ids [0, cached) are in the cache, in pages that the sequence holds; a sequence that
// does not run holds no page. Guesses are the last ids, stand there during one step only, and count
// neither in length() nor, once count_step() has been called, in cached(). cut() is the only way in
// which the text becomes shorter.
class ScheduledSequence {
 public:
  struct Args {
    Choice& choice;  // the answer that it belongs to, which owns it
    const OpenRequest& open;
    PagePool& pool;
    std::vector<std::int32_t> prompt;
    bool is_guide = false;   // the second sequence of a guided answer
    bool every_row = false;  // the logits of every prompt token are wanted
  };
  explicit ScheduledSequence(Args args);
  ScheduledSequence(const ScheduledSequence&) = delete;
  ScheduledSequence& operator=(const ScheduledSequence&) = delete;

  Choice& choice() const { return choice_; }
  const OpenRequest& open() const { return open_; }
  bool is_guide() const { return is_guide_; }

  // --- The text ---

  const Sequence& sequence() const { return sequence_; }
  Sequence& sequence() { return sequence_; }  // for the model and for draft sources
  std::span<const std::int32_t> ids() const { return sequence_.ids; }
  // The first `count` ids, guesses included.
  std::span<const std::int32_t> first(std::int64_t count) const {
    return first_ids(sequence_, count);
  }
  // Tokens of the text; guesses do not count.
  std::int64_t length() const { return std::ssize(sequence_.ids) - guesses_; }
  std::int64_t cached() const { return sequence_.cached; }
  void append(std::int32_t id) { sequence_.ids.push_back(id); }
  void append_guesses(std::span<const std::int32_t> ids);
  void remove_guesses();
  // Cuts the text to its first `tokens` tokens, guesses included. The last one that stays counts as
  // not computed, since the logits behind it are needed again.
  void cut(PrefixCache& cache, std::int64_t tokens);

  // --- The cache ---

  // Takes from the cache what it knows of the text.
  void adopt(PrefixCache& cache);
  // Whether adopt() may find more: the sequence has computed nothing beyond what it adopted.
  bool may_adopt() const {
    return sequence_.pages.capacity() == cached() && cursor_.tokens == cached();
  }
  // Whether the next page is on its way from the host and comes with a later step.
  bool waits_for_page() const { return cursor_.waits; }
  // Makes room for `tokens` tokens. False when there are too few pages.
  [[nodiscard]] bool reserve(PrefixCache& cache, std::int64_t tokens) {
    return cache.reserve(sequence_.pages, tokens);
  }
  // Lets others find what is computed: the full pages, with `last_page` the partly filled one too.
  // A page that there is no memory to list is computed again by whoever needs it.
  void publish(PrefixCache& cache, bool last_page) noexcept;
  // Gives all pages back; the cache keeps what was published.
  void release(PrefixCache& cache) noexcept { cache.release(sequence_.pages, cursor_); }

  // --- Steps ---

  // The step item that computes the next `count` tokens.
  StepItem item(std::int64_t count, LogitRows rows) {
    return {.sequence = &sequence_, .count = count, .logits = rows, .adapters = &open_.adapters};
  }
  // The model counts all tokens of its item as cached when a step has computed them. This takes the
  // guesses off again, until they turn out right.
  void count_step() { sequence_.cached -= guesses_; }
  // The newest token was a guess of this step, and is right: it is computed already.
  void count_right_guess() { sequence_.cached = length(); }
  // A step that was enqueued ahead has become the present one; it computes one token.
  void count_step_ahead() { ++sequence_.cached; }
  // What a step has computed from the token at `from` on has to be computed again.
  void compute_again(std::int64_t from) {
    BL_DCHECK(from <= cached());
    sequence_.cached = from;
  }

  // --- Scheduling ---

  bool is_running() const { return is_running_; }
  // The sequence runs from now on. True for the first time, false after a preemption.
  bool admit();
  // The sequence gives up its pages and waits.
  void preempt(PrefixCache& cache);
  bool was_preempted() const { return was_preempted_; }
  void pass_over() { ++passed_over_; }
  // The prompt has been computed for the first time.
  void finish_prompt() { is_prompt_done_ = true; }
  bool is_prompt_done() const { return is_prompt_done_; }
  // Whether the logits behind every token are wanted, so that nothing can be taken from the cache.
  bool wants_every_row() const { return every_row_ && !is_prompt_done_; }
  // What the scheduler needs to know, except what it costs in pages and what its answer decides.
  SequenceState state() const;
  // Running: pages that nobody else uses.
  std::int32_t own_pages(const PagePool& pool) const;
  // Waiting: pages that it would share with running sequences.
  std::int32_t shared_pages(const PrefixCache& cache);

 private:
  Choice& choice_;
  const OpenRequest& open_;
  Sequence sequence_;
  PrefixCursor cursor_;
  SharedBeginning shared_beginning_;  // what shared_pages() found last
  std::int64_t guesses_ = 0;
  std::int32_t passed_over_ = 0;
  const bool is_guide_;
  const bool every_row_;
  bool is_prompt_done_ = false;
  bool is_running_ = false;
  bool was_admitted_ = false;
  bool was_preempted_ = false;
};

}  // namespace bl
