#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/accept_token.h"
#include "engine/cache_tiers.h"
#include "engine/caught_error.h"
#include "engine/choice.h"
#include "engine/engine_stats.h"
#include "engine/lent_pages.h"
#include "engine/mask_worker.h"
#include "engine/page_table_view.h"
#include "engine/pinned_prefixes.h"
#include "engine/row_sampler.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "engine/step_ahead.h"
#include "engine/step_model.h"

namespace bl {

class Tokenizer;

// The engine without its thread: what it has accepted, and how a step is made of it. Everything
// here happens on one thread, so tests drive it step by step.
class EngineCore {
 public:
  struct Options {
    std::int64_t running = 0;      // choices at once; 0: as many as the model gives rows for
    std::int64_t step_tokens = 0;  // budget of a step; 0: as many as the model takes
    std::vector<std::int32_t> end_tokens;
    SpeculationOptions speculation{};
    std::size_t host_bytes = 0;        // host memory for pages that are evicted
    std::optional<TierRates> rates{};  // to be believed instead of what is measured
  };
  // Both must outlive it; without a tokenizer there is no text.
  EngineCore(StepModel& model, const Tokenizer* tokenizer, Options options);
  ~EngineCore();

  // `open` has been checked. It runs whole or not at all: where there is no memory for it, its
  // events say so.
  void add(const std::shared_ptr<OpenRequest>& open) noexcept;
  // One step, or what had to be done instead. False when nothing can be done before something
  // comes from outside. What goes wrong ends the requests that it concerns, each with an error;
  // all of them where that cannot be told.
  bool step(EngineClock::time_point now);
  // Ends everything.
  void end_all(const Error& error) noexcept;
  // The same in the next step, as whoever asked would do it.
  void cancel_all();
  bool unpin(const std::string& name) { return pins_.unpin(name); }

  std::int64_t requests() const { return requests_; }  // not over yet
  std::int64_t most_running() const { return limits_.running; }
  std::optional<EngineClock::time_point> next_deadline() const;
  EngineStats stats() const;
  PageTableView page_table() const;
  const PrefixCache& cache() const { return cache_; }
  // For what is done to the cache between two steps.
  PrefixCache& cache() { return cache_; }
  PinnedPrefixes& pins() { return pins_; }
  StepModel& model() { return model_; }
  // A table for somebody on another thread. Its pages are given back by the next step behind the
  // moment in which he lets go of it, or by take_back().
  std::shared_ptr<LentPages> lend();
  void take_back() noexcept;

 private:
  using ChoicePtr = std::unique_ptr<Choice>;
  static void refuse(const OpenRequest& open, const Error& error) noexcept;
  std::vector<ChoicePtr> choices_of(const std::shared_ptr<OpenRequest>& open) const;
  bool take_step(EngineClock::time_point now);
  void end_unwanted(EngineClock::time_point now);
  SchedulerState state(std::vector<Choice*>& who) const;
  SequenceState state_of(Choice& choice, bool exact_pages) const;
  bool is_blocked(const Choice& choice) const;
  bool admit(EngineClock::time_point now);
  void tell_start(Choice& choice);
  void adopt(Choice& choice);
  void preempt(Choice& choice);
  void publish(Choice& choice, bool last_page) noexcept;
  void publish_computed() noexcept;
  void gather(const std::vector<Choice*>& who, const StepPlan& plan);
  void gather_item(Choice& choice, const StepWork& work, std::int64_t& rows);
  void drop_ended_items();
  void compute(const std::vector<Choice*>& who, const StepPlan& plan);
  void run_step(bool is_under_way);
  StepOutput wait_for_model(bool is_under_way);
  bool may_go_ahead() const;
  bool break_deadlock(const std::vector<Choice*>& who);

  void count_computed(const ComputedItem& item);
  void take_rows(const StepOutput& output);
  void compute_again(const ComputedItem& item);
  void fill_task(Choice& choice, std::int64_t place, RowTask& task) const;
  bool is_end(const Choice& choice, std::int32_t id) const;
  void take_task(Choice& choice, RowTask& task);
  void settle(const ComputedItem& computed);
  void settle_drafts(EngineClock::time_point start);
  // The model's, as far as they mean something to this request.
  std::span<const std::int32_t> end_tokens(const Choice& choice) const;
  std::string pin(Choice& choice);
  void prompt_is_computed(Choice& choice);
  // Does a part of the work on an answer. False where that threw: then the answer has ended.
  template <class Work>
  bool attempt(Choice& choice, Work&& work) noexcept {
    try {
      work();
      return true;
    } catch (const std::exception&) {
      end_with(choice, caught_error());
      return false;
    }
  }
  void end_with(Choice& choice, const Error& error) noexcept;
  void finish(Choice& choice, Ending ending) noexcept;
  void give_last(Choice& choice, Ending ending);
  void leave(Choice& choice, bool failed) noexcept;
  void free_siblings(const Choice& leader);
  void sweep();

  StepModel& model_;
  const Tokenizer* tokenizer_;
  Options options_;
  StepModel::Facts facts_;
  SchedulerLimits limits_;
  CacheTiers tiers_;
  PrefixCache cache_;
  RowSampler row_sampler_;
  Speculation speculation_;
  MaskWorker mask_worker_;
  StepAhead ahead_;
  std::vector<ChoicePtr> choices_;  // best rank first
  PinnedPrefixes pins_;
  std::vector<std::shared_ptr<LentPages>> lent_;
  EngineStats stats_;
  std::int64_t requests_ = 0;
  std::vector<StepItem> items_;  // of the present step
  std::vector<ComputedItem> computed_;
  std::vector<Constraint*> constraints_;  // whose next mask the present step needs
  std::vector<RowTask> tasks_;
  bool any_over_ = false;
};

}  // namespace bl
