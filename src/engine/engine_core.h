#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/admission_control.h"
#include "engine/cache_tiers.h"
#include "engine/choice_closer.h"
#include "engine/choice_list.h"
#include "engine/engine_stats.h"
#include "engine/lent_pages.h"
#include "engine/mask_worker.h"
#include "engine/open_request.h"
#include "engine/page_loans.h"
#include "engine/page_table_view.h"
#include "engine/pinned_prefixes.h"
#include "engine/row_intake.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "engine/step_ahead.h"
#include "engine/step_builder.h"
#include "engine/step_ledger.h"
#include "engine/step_model.h"

namespace bl {

class Tokenizer;

// The engine without its thread: the requests that it has accepted, and how steps are made of them.
// Everything here happens on one thread, so tests drive it step by step. It owns the parts that do
// the work and says in which order they do it.
class EngineCore {
 public:
  struct Options {
    std::int64_t running = 0;      // sequences at once; 0: as many as the model gives rows for
    std::int64_t step_tokens = 0;  // tokens per step at most; 0: as many as the model takes
    std::vector<std::int32_t> end_tokens;
    SpeculationOptions speculation{};
    std::size_t host_bytes = 0;        // host memory for evicted pages
    std::optional<TierRates> rates{};  // used instead of measured ones
  };
  // Model and tokenizer must outlive it; without a tokenizer answers have no text.
  EngineCore(StepModel& model, const Tokenizer* tokenizer, Options options);

  // `open` has been checked. Its choices are accepted all or none; where there is no memory for
  // them, its events say so.
  void add(const std::shared_ptr<OpenRequest>& open) noexcept;
  // Does one step, or what had to be done instead. False when nothing can be done before something
  // comes from outside. What goes wrong ends the requests that it concerns, each with an error, or
  // all requests where that cannot be told.
  bool step(EngineClock::time_point now);
  // Ends all requests with this error.
  void end_all(const Error& error) noexcept;
  // Cancels all requests; each ends in the next step, as if its client had cancelled it.
  void cancel_all();
  // Whether a step is enqueued whose results are not taken yet. Then the model must not run.
  bool has_step_ahead() const { return ahead_.under_way(); }
  // Has all answers of a request that are not over choose their tokens by other parameters, which
  // are validated and prepared.
  void change_sampling(std::int64_t number, const std::shared_ptr<const SamplingParams>& sampling);
  bool unpin(const std::string& name) { return pins_.unpin(name); }

  std::int64_t requests() const { return choices_.requests(); }  // not over yet
  std::int64_t most_running() const { return limits_.running; }
  // When step() has something to do at the latest.
  std::optional<EngineClock::time_point> next_deadline() const;
  EngineStats stats() const;
  PageTableView page_table() const;
  // The cache, pins and model, for work between two steps.
  const PrefixCache& cache() const { return cache_; }
  PrefixCache& cache() { return cache_; }
  PinnedPrefixes& pins() { return pins_; }
  StepModel& model() { return model_; }
  // Work between two steps has run the model once.
  void count_step() { ++steps_; }
  // A page table for another thread, to be used in calls on the engine's thread. The first step
  // after the caller lets go of it, or take_back(), gives its pages back.
  std::shared_ptr<LentPages> lend() { return loans_.lend(); }
  void take_back() noexcept { loans_.take_back(); }

 private:
  static SchedulerLimits limits_of(const Options& options, const StepModel::Facts& facts,
                                   std::int32_t pages);
  std::vector<std::unique_ptr<Choice>> choices_of(const std::shared_ptr<OpenRequest>& open) const;
  bool take_step(EngineClock::time_point now);
  bool plan_and_run(EngineClock::time_point now);
  void end_unwanted(EngineClock::time_point now);
  void run_step(bool is_under_way);
  StepOutput wait_for_model(bool is_under_way);
  bool break_deadlock();

  StepModel& model_;
  const Tokenizer* tokenizer_;
  Options options_;  // with sorted end tokens
  SchedulerLimits limits_;
  CacheTiers tiers_;
  PrefixCache cache_;
  PinnedPrefixes pins_;
  PageLoans loans_;
  Speculation speculation_;  // outlives what choices keep for its draft source
  StepAhead ahead_;
  ChoiceList choices_;
  ChoiceCloser closer_;
  AdmissionControl admission_;
  StepBuilder present_;  // the present step
  MaskWorker mask_worker_;
  RowIntake rows_;
  StepLedger ledger_;
  Lineup lineup_;  // of the present step
  std::int64_t steps_ = 0;
  double step_seconds_ = 0;
  double model_seconds_ = 0;
};

}  // namespace bl
