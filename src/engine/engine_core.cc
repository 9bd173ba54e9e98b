#include "engine/engine_core.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <new>
#include <utility>

#include "base/check.h"
#include "engine/best_answers.h"
#include "engine/caught_error.h"
#include "engine/guided_choice.h"
#include "engine/model_choice.h"
#include "ops/kv_layout.h"
#include "text/tokenizer.h"

namespace bl {

EngineCore::EngineCore(StepModel& model, const Tokenizer* tokenizer, Options options)
    : model_(model),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      facts_(model.facts()),
      tiers_(model, options_.host_bytes, options_.rates),
      cache_(
          model.pool(), [&model](std::int32_t to, std::int32_t from) { model.copy_page(to, from); },
          model.least_copied(), tiers_.host()),
      row_sampler_(model.threads(), tokenizer == nullptr
                                        ? static_cast<std::size_t>(facts_.vocab)
                                        : static_cast<std::size_t>(tokenizer->vocab_size())),
      speculation_(std::move(options_.speculation), model, cache_),
      ahead_(model, cache_),
      pins_(model.pool()) {
  const auto at_most = [](std::int64_t wanted, std::int64_t limit) {
    return wanted > 0 ? std::min(wanted, limit) : limit;
  };
  limits_.step_tokens = at_most(options_.step_tokens, facts_.step_tokens);
  limits_.logit_rows = facts_.logit_rows;
  const std::int64_t sequences = facts_.sequences > 0 ? facts_.sequences : facts_.logit_rows;
  limits_.running =
      std::min({at_most(options_.running, sequences), facts_.logit_rows, limits_.step_tokens});
  limits_.spare_pages = model.pool().pages() / 32;
  std::sort(options_.end_tokens.begin(), options_.end_tokens.end());
}

EngineCore::~EngineCore() {
  // Who still has them may stay longer than the pool.
  for (const std::shared_ptr<LentPages>& lent : lent_) lent->table.reset();
}

std::shared_ptr<LentPages> EngineCore::lend() {
  return lent_.emplace_back(std::make_shared<LentPages>(model_.pool()));
}

void EngineCore::take_back() noexcept {
  std::erase_if(lent_, [this](const std::shared_ptr<LentPages>& lent) {
    if (lent.use_count() > 1) return false;
    cache_.release(*lent->table, lent->cursor);
    return true;
  });
}

// A request that could not be added.
void EngineCore::refuse(const OpenRequest& open, const Error& error) noexcept {
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

void EngineCore::add(const std::shared_ptr<OpenRequest>& open) noexcept {
  try {
    std::vector<ChoicePtr> made = choices_of(open);
    choices_.reserve(choices_.size() + made.size());
    const auto place =
        std::upper_bound(choices_.begin(), choices_.end(), open->rank,
                         [](double rank, const ChoicePtr& c) { return rank < c->open->rank; });
    choices_.insert(place, std::make_move_iterator(made.begin()),
                    std::make_move_iterator(made.end()));
    ++requests_;
  } catch (const std::exception&) {
    refuse(*open, caught_error());
  }
}

std::vector<EngineCore::ChoicePtr> EngineCore::choices_of(
    const std::shared_ptr<OpenRequest>& open) const {
  const Request& request = open->request;
  std::vector<ChoicePtr> made;
  open->open_choices = open->choices();
  if (open->choices() > request.sampling.n) {
    open->held = std::make_unique<EventStream>(open->choices(), std::make_shared<Waker>());
    open->scores.assign(static_cast<std::size_t>(open->choices()), 0.0);
  }
  for (std::int32_t i = 0; i < open->choices(); ++i) {
    made.push_back(std::make_unique<Choice>(open, i, model_.pool()));
    Choice& choice = *made.back();
    if (tokenizer_ != nullptr) start_text(choice, *tokenizer_);
    choice.leader = i > 0 ? made.front().get() : nullptr;
    if (!open->negative.empty()) made.push_back(make_guide(choice, model_.pool()));
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
  take_back();
  cache_.begin_step(tiers_.rates(), tiers_.restored_pages());
  // Readers go on meanwhile; what a step decides, it decides on one view of them.
  for (const ChoicePtr& choice : choices_) choice->blocked = is_blocked(*choice);
  if (ahead_.under_way()) {
    run_step(true);
    sweep();
    stats_.step_seconds += seconds_between(start, EngineClock::now());
    return true;
  }
  const bool admitted = admit(now);
  std::vector<Choice*> who;
  SchedulerState now_running = state(who);
  speculation_.wish(who, now_running, options_.end_tokens);
  const StepPlan plan = plan_step(now_running, limits_);
  for (const std::int32_t index : plan.preempted) preempt(*who[static_cast<std::size_t>(index)]);
  bool computed = !plan.work.empty();
  if (computed) {
    compute(who, plan);
  } else {
    computed = break_deadlock(who);
  }
  const bool ended = any_over_;
  sweep();
  if (computed) stats_.step_seconds += seconds_between(start, EngineClock::now());
  return admitted || computed || ended || !plan.preempted.empty();
}

void EngineCore::end_unwanted(EngineClock::time_point now) {
  for (const ChoicePtr& choice : choices_) {
    if (choice->open->stream->cancelled()) {
      finish(*choice, {FinishReason::kCancelled});
    } else if (choice->open->deadline && now >= *choice->open->deadline) {
      finish(*choice, {FinishReason::kDeadline});
    }
  }
  sweep();
}

bool EngineCore::is_blocked(const Choice& choice) const {
  if (choice.leader != nullptr) return true;
  if (choice.open->held) return false;
  return choice.open->stream->unread(choice.index) >= choice.open->request.unread_tokens;
}

// Lets others find what a text has computed: its full pages, or the last one too. What there is no
// memory to list is computed again by who needs it.
void EngineCore::publish(Choice& choice, bool last_page) noexcept {
  Sequence& sequence = choice.sequence;
  const auto ids = first_ids(sequence, sequence.cached);
  try {
    if (last_page) {
      cache_.publish_all(choice.open->salt, ids, sequence.pages, choice.cursor);
    } else if (choice.cursor.tokens + kPageSlots <= sequence.cached) {
      cache_.publish(choice.open->salt, ids, sequence.pages, choice.cursor);
    }
  } catch (const std::bad_alloc&) {
  }
}

// The items of a plan. What they take from the cache may make them shorter than planned, never
// longer.
void EngineCore::gather(const std::vector<Choice*>& who, const StepPlan& plan) {
  items_.clear();
  computed_.clear();
  constraints_.clear();
  // An item that is listed is listed everywhere.
  items_.reserve(plan.work.size());
  computed_.reserve(plan.work.size());
  constraints_.reserve(plan.work.size());
  std::int64_t rows = limits_.logit_rows;
  for (const StepWork& work : plan.work) {
    Choice& choice = *who[static_cast<std::size_t>(work.sequence)];
    if (!choice.over) attempt(choice, [&] { gather_item(choice, work, rows); });
  }
  if (any_over_) drop_ended_items();
  StepAhead::arrange(items_, computed_);
}

void EngineCore::gather_item(Choice& choice, const StepWork& work, std::int64_t& rows) {
  Sequence& sequence = choice.sequence;
  const std::int64_t before = sequence.cached;
  if ((work.tokens > 1 || choice.cursor.waits) && sequence.pages.capacity() == before &&
      choice.cursor.tokens == before) {
    adopt(choice);
    if (choice.usage.preemptions == 0 && !choice.prompt_told) {
      choice.usage.cached_tokens += sequence.cached - before;
      choice.usage.cached_pages += (sequence.cached - before) / kPageSlots;
      cache_.count_found(sequence.cached - before);
    }
    if (choice.cursor.waits) return;
  }
  std::int64_t count = std::min(work.tokens, choice.length() - sequence.cached);
  LogitRows wanted = LogitRows::kNone;
  if (choice.wants_prompt_rows()) {
    wanted = LogitRows::kAll;
    count = std::min(count, rows);
  } else if (sequence.cached + count == choice.length()) {
    wanted = rows > 0 ? LogitRows::kLast : LogitRows::kNone;
    count -= rows > 0 ? 0 : 1;
  }
  if (count == 0 || !cache_.reserve(sequence.pages, sequence.cached + count)) return;
  const std::int64_t drafts = choice.draft.count;
  if (drafts > 0 && wanted == LogitRows::kLast && count == 1 && drafts < rows &&
      cache_.reserve(sequence.pages, sequence.cached + 1 + drafts)) {
    choice.append_drafts();
    wanted = LogitRows::kAll;
    count += drafts;
  }
  rows -= wanted == LogitRows::kAll ? count : (wanted == LogitRows::kLast ? 1 : 0);
  if (choice.constraint && wanted != LogitRows::kNone) {
    constraints_.push_back(choice.constraint.get());
  }
  items_.push_back({.sequence = &sequence,
                    .count = count,
                    .logits = wanted,
                    .adapters = &choice.open->adapters});
  let_model_choose(choice, items_.back());
  computed_.push_back({.choice = &choice,
                       .begin = sequence.cached,
                       .count = count,
                       .rows = wanted,
                       .drafts = choice.drafted,
                       .chosen_by_model = items_.back().sampling != nullptr});
}

// A guided answer that has ended over one of its texts has had an item for the other.
void EngineCore::drop_ended_items() {
  constraints_.clear();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < computed_.size(); ++i) {
    Choice& choice = *computed_[i].choice;
    if (choice.over) continue;
    if (choice.constraint && computed_[i].rows != LogitRows::kNone) {
      constraints_.push_back(choice.constraint.get());
    }
    items_[kept] = items_[i];
    computed_[kept++] = computed_[i];
  }
  items_.resize(kept);
  computed_.resize(kept);
}

void EngineCore::compute(const std::vector<Choice*>& who, const StepPlan& plan) {
  speculation_.draft(who, plan, options_.end_tokens);
  gather(who, plan);
  if (!items_.empty()) run_step(false);
}

// Computes the items, or waits for those that are under way, and takes what comes of them.
void EngineCore::run_step(bool is_under_way) {
  const auto start = EngineClock::now();
  ++stats_.steps;
  // What a step throws is the answer to the requests that were in it, and to no other.
  try {
    if (is_under_way) {
      computed_ = ahead_.become_present();
      constraints_.clear();
    }
    const StepOutput output = wait_for_model(is_under_way);
    const auto now = EngineClock::now();
    stats_.model_seconds += seconds_between(start, now);
    if (!is_under_way) tiers_.count_step(items_, seconds_between(start, now));
    for (const ComputedItem& c : computed_) {
      if (c.choice != nullptr) attempt(*c.choice, [&] { count_computed(c); });
    }
    take_rows(output);
    if (speculation_.on()) settle_drafts(start);
    publish_computed();
  } catch (const std::exception&) {
    const Error error = caught_error();
    ahead_.forget();
    for (const ComputedItem& c : computed_) {
      if (c.choice != nullptr) end_with(*c.choice, error);
    }
  }
}

StepOutput EngineCore::wait_for_model(bool is_under_way) {
  const MaskWorker::Turn masks(mask_worker_, constraints_);
  if (!is_under_way) model_.start(items_);
  if (may_go_ahead()) ahead_.begin(computed_);
  return model_.take();
}

// The item is in the cache.
void EngineCore::count_computed(const ComputedItem& item) {
  Choice& choice = *item.choice;
  Sequence& sequence = choice.sequence;
  BL_DCHECK(sequence.cached == item.begin + item.count);
  sequence.cached -= item.drafts;  // until they are verified
  choice.begin_draft_round(item.drafts);
  if (choice.generated() == 0 || item.count - item.drafts > 1) {
    choice.usage.prefill_tokens += item.count;
    stats_.prefill_tokens += item.count;
  } else {
    ++stats_.decode_tokens;
  }
  if (!choice.prompt_told && choice.main == nullptr && sequence.cached < choice.length()) {
    choice.open->sink().push({.choice = choice.index, .prompt_done = sequence.cached});
  }
}

void EngineCore::settle_drafts(EngineClock::time_point start) {
  std::int64_t rows = 0;
  std::int64_t decoding = 0;
  std::int64_t guides = 0;
  for (const ComputedItem& c : computed_) {
    const bool is_one = c.count - c.drafts == 1;
    rows += c.count;
    decoding += is_one ? 1 : 0;
    guides += is_one && c.choice->main != nullptr ? 1 : 0;
    settle(c);
  }
  const bool decodes = decoding == static_cast<std::int64_t>(computed_.size());
  if (decodes) speculation_.measured_step(rows, seconds_between(start, EngineClock::now()));
  speculation_.end_step(decoding, guides);
}

// What was guessed wrong was never computed.
void EngineCore::settle(const ComputedItem& computed) {
  Choice& choice = *computed.choice;
  if (computed.drafts == 0) return speculation_.compare(choice);
  const std::int64_t right =
      std::clamp<std::int64_t>(choice.sequence.cached - computed.begin - 1, 0, computed.drafts);
  // Both texts of a guided answer have the same guesses, which count once.
  if (choice.main == nullptr) speculation_.settle(choice, computed.drafts, right);
  stats_.decode_tokens += right;
  if (choice.over) return;
  choice.truncate(cache_, choice.length());
}

// Only now, since a row that is broken says that its page is, and a row that was lost is computed
// again, into a page that must be nobody else's. A row of guidance that waits was not looked at.
void EngineCore::publish_computed() noexcept {
  for (const ComputedItem& c : computed_) {
    if (c.choice != nullptr && !c.choice->over && c.choice->rows.empty()) publish(*c.choice, false);
  }
}

void EngineCore::free_siblings(const Choice& leader) {
  if (leader.index > 0 || leader.open->choices() == 1) return;
  for (const ChoicePtr& other : choices_) {
    if (other->leader == &leader) other->leader = nullptr;
  }
}

// The answer ends with an error that has come of the work on it.
void EngineCore::end_with(Choice& choice, const Error& error) noexcept {
  Ending ending{FinishReason::kError, error.code()};
  try {
    ending.error = error.what();
  } catch (const std::bad_alloc&) {
    ending.code = ErrorCode::kOutOfMemory;
    ending.error = EventStream::kNoMemory;
  }
  finish(choice, std::move(ending));
}

void EngineCore::finish(Choice& choice, Ending ending) noexcept {
  if (choice.main != nullptr) return finish(*choice.main, std::move(ending));
  if (choice.over) return;
  choice.remove_drafts();
  const auto now = EngineClock::now();
  Usage& usage = choice.usage;
  usage.generated_tokens = choice.generated();
  if (choice.prompt_told) {
    usage.decode_seconds = seconds_between(choice.first_token, now);
  } else if (choice.admitted != EngineClock::time_point()) {
    usage.prefill_seconds = seconds_between(choice.admitted, now);
  } else {
    usage.queue_seconds = seconds_between(choice.open->submitted, now);
  }
  leave(choice, ending.reason == FinishReason::kError);
  if (choice.guide != nullptr) leave(*choice.guide, ending.reason == FinishReason::kError);
  OpenRequest& open = *choice.open;
  bool is_good = ending.reason != FinishReason::kError;
  try {
    give_last(choice, std::move(ending));
  } catch (const std::exception&) {
    is_good = false;
    open.sink().end_without_memory(choice.index, usage);
  }
  if (open.held) {
    const auto tokens = static_cast<double>(std::max<std::int64_t>(usage.generated_tokens, 1));
    open.scores[static_cast<std::size_t>(choice.index)] =
        is_good ? choice.score / tokens : -std::numeric_limits<double>::infinity();
  }
  if (--open.open_choices > 0) return;
  --requests_;
  if (!open.held) return;
  try {
    give_best_answers(open);
  } catch (const std::exception&) {
    for (std::int64_t i = 0; i < open.request.sampling.n; ++i) {
      open.stream->end_without_memory(static_cast<std::int32_t>(i), usage);
    }
  }
}

// The last event, with what still waited to be given.
void EngineCore::give_last(Choice& choice, Ending ending) {
  give_held(choice);
  Event event{.choice = choice.index, .finish = ending.reason, .usage = choice.usage};
  event.draft_rounds = std::move(choice.draft_rounds);
  tell_rest(choice, tokenizer_, event);
  event.code = ending.code;
  event.error = std::move(ending.error);
  choice.open->sink().push(std::move(event));
}

// It runs no more. What a failed step has written is not known.
void EngineCore::leave(Choice& choice, bool failed) noexcept {
  choice.over = true;
  any_over_ = true;
  ahead_.drop(choice);
  Sequence& sequence = choice.sequence;
  if (!failed) publish(choice, true);
  cache_.release(sequence.pages, choice.cursor);
  free_siblings(choice);
}

// Nothing could run though somebody wanted to: pages are held by pins, or a sequence has grown
// beyond what is left. The best one cannot be helped, and the others may go on without it. Pages
// that are lent come back, and whoever had them wakes the engine.
bool EngineCore::break_deadlock(const std::vector<Choice*>& who) {
  if (!lent_.empty()) return false;
  Choice* first = nullptr;
  bool any_runs = false;
  for (Choice* choice : who) {
    any_runs = any_runs || choice->running;
    if (choice->over || choice->blocked) continue;
    if (first == nullptr || (choice->running && !first->running)) first = choice;
  }
  if (first == nullptr || (any_runs && !first->running)) return false;
  attempt(*first, [] {
    fail(ErrorCode::kLimit,
         "the cache has too few pages left for this request; pinned prompts hold others");
  });
  return true;
}

void EngineCore::sweep() {
  if (!any_over_) return;
  any_over_ = false;
  choices_.erase(std::remove_if(choices_.begin(), choices_.end(),
                                [](const ChoicePtr& choice) { return choice->over; }),
                 choices_.end());
}

void EngineCore::end_all(const Error& error) noexcept {
  ahead_.forget();
  for (const ChoicePtr& choice : choices_) end_with(*choice, error);
  sweep();
}

void EngineCore::cancel_all() {
  for (const ChoicePtr& choice : choices_) choice->open->stream->cancel();
}

std::optional<EngineClock::time_point> EngineCore::next_deadline() const {
  std::optional<EngineClock::time_point> next;
  for (const ChoicePtr& choice : choices_) {
    const auto& deadline = choice->open->deadline;
    if (deadline && (!next || *deadline < *next)) next = deadline;
  }
  // Whoever gives pages back wakes the engine, unless there was no memory for that.
  if (!lent_.empty()) {
    const auto soon = EngineClock::now() + std::chrono::seconds(1);
    next = next ? std::min(*next, soon) : soon;
  }
  return next;
}

EngineStats EngineCore::stats() const {
  EngineStats stats = stats_;
  for (const ChoicePtr& choice : choices_) ++(choice->running ? stats.running : stats.waiting);
  const PagePool& pool = model_.pool();
  stats.pages = pool.pages();
  stats.free_pages = pool.free_pages();
  stats.idle_pages = pool.idle_pages();
  stats.drafted_tokens = speculation_.drafted();
  stats.accepted_tokens = speculation_.accepted();
  stats.draft_seconds = speculation_.seconds();
  stats.cache = cache_.stats();
  stats.pinned_pages = pins_.pages();
  tiers_.tell(stats);
  return stats;
}

}  // namespace bl
