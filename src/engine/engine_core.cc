#include "engine/engine_core.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine/caught_error.h"
#include "engine/page_census.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

// Tells the reader that the request could not be accepted.
void refuse(const OpenRequest& open, const Error& error) noexcept {
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(open.request.sampling.n); ++i) {
    try {
      open.stream->push({.choice = i,
                         .finish = FinishReason::kError,
                         .code = error.code(),
                         .error = error.what()});
    } catch (const std::exception&) {
      open.stream->end_without_memory(i, {});
    }
  }
}

// Ids beyond the tokenizer's vocabulary stand for no text and are never chosen.
std::size_t choosable_tokens(const StepModel::Facts& facts, const Tokenizer* tokenizer) {
  return static_cast<std::size_t>(tokenizer == nullptr ? facts.vocab : tokenizer->vocab_size());
}

EngineCore::Options with_sorted_ends(EngineCore::Options options) {
  std::ranges::sort(options.end_tokens);
  return options;
}

}  // namespace

SchedulerLimits EngineCore::limits_of(const Options& options, const StepModel::Facts& facts,
                                      std::int32_t pages) {
  const auto at_most = [](std::int64_t wanted, std::int64_t limit) {
    return wanted > 0 ? std::min(wanted, limit) : limit;
  };
  const std::int64_t sequences = facts.sequences > 0 ? facts.sequences : facts.logit_rows;
  SchedulerLimits limits;
  limits.step_tokens = at_most(options.step_tokens, facts.step_tokens);
  limits.logit_rows = facts.logit_rows;
  limits.running =
      std::min({at_most(options.running, sequences), facts.logit_rows, limits.step_tokens});
  limits.spare_pages = pages / 32;
  return limits;
}

EngineCore::EngineCore(StepModel& model, const Tokenizer* tokenizer, Options options)
    : model_(model),
      tokenizer_(tokenizer),
      options_(with_sorted_ends(std::move(options))),
      limits_(limits_of(options_, model.facts(), model.pool().pages())),
      tiers_(model, options_.host_bytes, options_.rates),
      cache_(
          model.pool(), [&model](std::int32_t to, std::int32_t from) { model.copy_page(to, from); },
          model.least_copied(), tiers_.host()),
      pins_(model.pool()),
      loans_(model.pool(), cache_),
      speculation_(std::move(options_.speculation), model, cache_),
      ahead_(model, cache_),
      closer_(choices_, cache_, ahead_),
      admission_({.choices = choices_,
                  .closer = closer_,
                  .cache = cache_,
                  .pool = model.pool(),
                  .limits = limits_}),
      present_(cache_, closer_, limits_.logit_rows),
      rows_({.cache = cache_,
             .ahead = ahead_,
             .pins = pins_,
             .closer = closer_,
             .sampler = RowSampler(model.threads(), choosable_tokens(model.facts(), tokenizer)),
             .end_tokens = options_.end_tokens}),
      ledger_(cache_, speculation_, closer_) {}

void EngineCore::add(const std::shared_ptr<OpenRequest>& open) noexcept {
  try {
    choices_.add(choices_of(open));
  } catch (const std::exception&) {
    refuse(*open, caught_error());
  }
}

std::vector<std::unique_ptr<Choice>> EngineCore::choices_of(
    const std::shared_ptr<OpenRequest>& open) const {
  const auto answers = std::make_shared<RequestAnswers>(open);
  std::vector<std::unique_ptr<Choice>> made;
  for (std::int32_t i = 0; i < open->choices(); ++i) {
    made.push_back(std::make_unique<Choice>(Choice::Args{
        .answers = answers, .index = i, .pool = model_.pool(), .tokenizer = tokenizer_}));
  }
  return made;
}

bool EngineCore::step(EngineClock::time_point now) {
  try {
    return take_step(now);
  } catch (const std::exception&) {
    end_all(caught_error());
    return true;
  }
}

bool EngineCore::take_step(EngineClock::time_point now) {
  const auto start = EngineClock::now();
  end_unwanted(now);
  loans_.take_back();
  cache_.begin_step(tiers_.rates(), tiers_.restored_pages());
  for (const auto& choice : choices_.all()) choice->look_at_reader();
  const std::int64_t steps = steps_;
  bool has_moved = true;
  if (ahead_.under_way()) {
    run_step(true);
    choices_.sweep();
  } else {
    has_moved = plan_and_run(now);
  }
  if (steps_ > steps) step_seconds_ += seconds_between(start, EngineClock::now());
  return has_moved;
}

bool EngineCore::plan_and_run(EngineClock::time_point now) {
  const bool has_admitted = admission_.admit(now);
  choices_.sweep();
  admission_.line_up(lineup_);
  speculation_.wish(lineup_.sequences, lineup_.state, options_.end_tokens);
  const StepPlan plan = plan_step(lineup_.state, limits_);
  for (const std::int32_t index : plan.preempted) admission_.preempt(lineup_.at(index));
  bool has_moved = has_admitted || !plan.preempted.empty();
  if (plan.work.empty()) {
    has_moved |= break_deadlock();
  } else {
    speculation_.draft(lineup_.sequences, plan, options_.end_tokens);
    present_.build(lineup_, plan);
    if (!present_.items().empty()) run_step(false);
    has_moved = true;
  }
  choices_.sweep();
  return has_moved;
}

void EngineCore::end_unwanted(EngineClock::time_point now) {
  for (const auto& choice : choices_.all()) {
    const OpenRequest& open = choice->open();
    if (open.stream->cancelled()) {
      closer_.finish(*choice, {FinishReason::kCancelled});
    } else if (open.deadline && now >= *open.deadline) {
      closer_.finish(*choice, {FinishReason::kDeadline});
    }
  }
  choices_.sweep();
}

// Computes the present step, or waits for the one under way, and takes what comes of it.
void EngineCore::run_step(bool is_under_way) {
  const auto start = EngineClock::now();
  ++steps_;
  // What a step throws is the answer to the requests that were in it, and to no other.
  try {
    if (is_under_way) present_.take(ahead_);
    const StepOutput output = wait_for_model(is_under_way);
    const double seconds = seconds_between(start, EngineClock::now());
    model_seconds_ += seconds;
    if (!is_under_way) tiers_.count_step(present_.items(), seconds);
    const std::span<const ComputedItem> computed = present_.computed();
    ledger_.count(computed);
    rows_.take(computed, output);
    if (speculation_.on()) ledger_.settle(computed, start);
    ledger_.publish(computed);
  } catch (const std::exception&) {
    const Error error = caught_error();
    ahead_.forget();
    for (const ComputedItem& item : present_.computed()) {
      if (item.sequence != nullptr) closer_.fail_with(item.sequence->choice(), error);
    }
  }
}

StepOutput EngineCore::wait_for_model(bool is_under_way) {
  const MaskWorker::Turn masks(mask_worker_, present_.constraints());
  if (!is_under_way) model_.start(present_.items());
  const std::span<const ComputedItem> computed = present_.computed();
  // Whoever has lent pages wants the model between two steps.
  const bool may_go_ahead = !speculation_.on() && !loans_.any();
  if (may_go_ahead && admission_.would_repeat(std::ssize(computed))) ahead_.begin(computed);
  return model_.take();
}

// Nothing could run though somebody wanted to: pages are held by pins, or a sequence has grown
// beyond what is left. The best one cannot be helped; without it the others may go on. Lent pages
// come back, though, and whoever had them wakes the engine. True where a request was ended.
bool EngineCore::break_deadlock() {
  if (loans_.any()) return false;
  ScheduledSequence* first = nullptr;
  bool any_runs = false;
  for (ScheduledSequence* sequence : lineup_.sequences) {
    any_runs = any_runs || sequence->is_running();
    if (sequence->choice().is_over() || sequence->choice().is_blocked()) continue;
    if (first == nullptr || (sequence->is_running() && !first->is_running())) first = sequence;
  }
  if (first == nullptr || (any_runs && !first->is_running())) return false;
  closer_.attempt(first->choice(), [] {
    fail(ErrorCode::kLimit,
         "the cache has too few pages left for this request; pinned prompts hold others");
  });
  return true;
}

void EngineCore::end_all(const Error& error) noexcept {
  ahead_.forget();
  for (const auto& choice : choices_.all()) closer_.fail_with(*choice, error);
  choices_.sweep();
}

void EngineCore::cancel_all() {
  for (const auto& choice : choices_.all()) choice->open().stream->cancel();
}

void EngineCore::change_sampling(std::int64_t number,
                                 const std::shared_ptr<const SamplingParams>& sampling) {
  for (const auto& choice : choices_.all()) {
    if (choice->open().number != number || choice->is_over()) continue;
    choice->sampler().change(sampling);
  }
}

std::optional<EngineClock::time_point> EngineCore::next_deadline() const {
  std::optional<EngineClock::time_point> next;
  for (const auto& choice : choices_.all()) {
    const auto& deadline = choice->open().deadline;
    if (deadline && (!next || *deadline < *next)) next = deadline;
  }
  // Whoever gives pages back wakes the engine, unless there was no memory for that.
  if (loans_.any()) {
    const auto soon = EngineClock::now() + std::chrono::seconds(1);
    next = next ? std::min(*next, soon) : soon;
  }
  return next;
}

EngineStats EngineCore::stats() const {
  EngineStats stats;
  choices_.each_sequence([&](const ScheduledSequence& sequence) {
    ++(sequence.is_running() ? stats.running : stats.waiting);
  });
  stats.steps = steps_;
  stats.step_seconds = step_seconds_;
  stats.model_seconds = model_seconds_;
  stats.prefill_tokens = ledger_.prefill_tokens();
  stats.decode_tokens = ledger_.decode_tokens();
  stats.preemptions = admission_.preemptions();
  const PagePool& pool = model_.pool();
  stats.pages = pool.pages();
  stats.free_pages = pool.free_pages();
  stats.idle_pages = pool.idle_pages();
  stats.draft_rounds = speculation_.rounds();
  stats.drafted_tokens = speculation_.drafted();
  stats.accepted_tokens = speculation_.accepted();
  stats.draft_seconds = speculation_.seconds();
  stats.cache = cache_.stats();
  stats.pinned_pages = pins_.pages();
  tiers_.tell(stats);
  return stats;
}

PageTableView EngineCore::page_table() const {
  PageCensus census(model_.pool(), cache_.index());
  choices_.each_sequence([&](const ScheduledSequence& sequence) {
    census.add_request(sequence.open().number, sequence.sequence().pages.pages(),
                       sequence.cached());
  });
  for (const auto& [name, pin] : pins_.all()) {
    census.add_pin(pin.pages.pages(), std::ssize(pin.ids));
  }
  for (const std::shared_ptr<LentPages>& lent : loans_.all()) {
    census.add_loan(lent->table->pages(), lent->cursor.tokens);
  }
  return census.take();
}

}  // namespace bl
