#include "engine/row_intake.h"

#include <algorithm>
#include <utility>

#include "engine/accept_token.h"

namespace bl {

RowIntake::RowIntake(Args args)
    : cache_(args.cache),
      ahead_(args.ahead),
      pins_(args.pins),
      closer_(args.closer),
      sampler_(std::move(args.sampler)),
      end_tokens_(args.end_tokens) {}

void RowIntake::take(std::span<const ComputedItem> step, const StepOutput& output) {
  tasks_.clear();
  owners_.clear();
  std::int64_t row = 0;
  for (const ComputedItem& item : step) row = add_rows(item, output, row);
  for (const ComputedItem& item : step) {
    if (item.sequence == nullptr) continue;
    Choice& choice = item.sequence->choice();
    if (!choice.is_guided()) continue;
    closer_.attempt(choice, [&] { choice.pair()->keep_waiting_row(); });
  }
  // Readers of what the model has chosen do not wait for what the host chooses for others.
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    if (is_settled(i)) take_task(i);
  }
  sampler_.run(tasks_);
  for (const ComputedItem& item : step) {
    if (item.sequence != nullptr) item.sequence->remove_guesses();
  }
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    if (owners_[i] != nullptr) take_task(i);
  }
}

// Adds what the item's rows, which begin at `row`, are wanted for. Returns the row behind them.
std::int64_t RowIntake::add_rows(const ComputedItem& item, const StepOutput& output,
                                 std::int64_t row) {
  const bool is_lost = item.rows == LogitRows::kLast && item.chosen_by_model && output.lost(row);
  if (item.sequence == nullptr || is_lost) {
    if (item.sequence != nullptr) compute_again(item);
    return row + 1;  // only items of one row are dropped or lost
  }
  ScheduledSequence& sequence = *item.sequence;
  Choice& choice = sequence.choice();
  const std::int64_t end = item.begin + item.count;
  const std::int64_t first = item.rows == LogitRows::kNone   ? end
                             : item.rows == LogitRows::kLast ? end - 1
                                                             : item.begin;
  if (choice.is_over()) return row + end - first;
  for (std::int64_t token = first; token < end; ++token) add_row(sequence, token, output, row++);
  if (choice.is_guided()) add_pairs(choice);
  return row;
}

// The row behind the token at `token` of a sequence.
void RowIntake::add_row(ScheduledSequence& sequence, std::int64_t token, const StepOutput& output,
                        std::int64_t row) {
  Choice& choice = sequence.choice();
  const bool is_known = token + 1 < sequence.length();
  if (!is_known && choice.is_guided()) {
    choice.pair()->add_row(sequence, output.logits.row(row));
    return;
  }
  RowTask& task = add_task(choice);
  if (output.chose(row)) {
    task.id = output.ids[static_cast<std::size_t>(row)];
    task.logprobs.token = {task.id, output.log_probability(row)};
  } else {
    task.logits = output.logits.row(row);
  }
  if (!is_known) return choice.fill(task, token + 1, end_tokens_);
  task.known = sequence.ids()[static_cast<std::size_t>(token) + 1];
  task.alternatives = static_cast<std::int32_t>(choice.open().request.sampling.prompt_logprobs);
}

void RowIntake::add_pairs(Choice& choice) {
  std::int64_t place = choice.text().length();
  choice.pair()->take_pairs([&](std::span<const float> row, std::span<const float> negative) {
    RowTask& task = add_task(choice);
    task.logits = row;
    task.negative = negative;
    choice.fill(task, place++, end_tokens_);
  });
}

RowTask& RowIntake::add_task(Choice& owner) {
  owners_.push_back(&owner);
  return tasks_.emplace_back();
}

// The model could make nothing of the row, and its logits are gone: the host will look at it.
void RowIntake::compute_again(const ComputedItem& item) {
  Choice& choice = item.sequence->choice();
  ahead_.drop(choice);
  choice.sampler().stay_on_host();
  item.sequence->compute_again(item.begin);
}

// Whether the model has chosen, and no guess stands behind the row.
bool RowIntake::is_settled(std::size_t i) const {
  const bool is_guessed =
      tasks_[i].follows >= 0 || (i + 1 < tasks_.size() && tasks_[i + 1].follows >= 0);
  return tasks_[i].id >= 0 && !is_guessed;
}

void RowIntake::take_task(std::size_t i) {
  Choice& owner = *std::exchange(owners_[i], nullptr);
  closer_.attempt(owner, [&] { take_token(owner, tasks_[i]); });
}

void RowIntake::take_token(Choice& choice, RowTask& task) {
  if (choice.is_over()) return;
  if (task.follows >= 0) {
    // Behind a guess that was wrong, or a text that went back, a row means nothing.
    const auto place = static_cast<std::int64_t>(task.history.size());
    if (!choice.confirm_guess(place, task.follows)) return;
  }
  if (task.state) choice.sampler().restore(*task.state);
  if (task.error) return closer_.fail_with(choice, *task.error);
  if (task.sampler == nullptr) {
    choice.keep_prompt_row(std::move(task.logprobs));
    return;
  }
  if (!choice.text().is_prompt_done()) {
    if (std::string error = pin(choice); !error.empty()) {
      return closer_.finish(choice, {FinishReason::kError, ErrorCode::kLimit, std::move(error)});
    }
    finish_prompt(choice);
    if (choice.open().request.prompt_only) {
      return closer_.finish(choice, {FinishReason::kMaxTokens});
    }
  }
  std::optional<Ending> ending =
      accept_token(choice, cache_,
                   {.id = task.id,
                    .logprobs = task.alternatives >= 0 ? &task.logprobs : nullptr,
                    .logits = task.logits,
                    .is_end = choice.is_end(task.id, end_tokens_),
                    .satisfied = task.satisfied});
  if (ending) closer_.finish(choice, std::move(*ending));
}

// Keeps a prompt that has just been computed, where that is asked for; says why it cannot.
std::string RowIntake::pin(Choice& choice) {
  const OpenRequest& open = choice.open();
  if (open.request.pin.empty() || choice.index() > 0) return {};
  ScheduledSequence& text = choice.text();
  text.publish(cache_, false);  // so that the pages that it holds are those that others find
  return pins_.pin(open.request.pin, open.salt, text.first(text.cached()),
                   text.sequence().pages.pages());
}

void RowIntake::finish_prompt(Choice& choice) {
  choice.finish_prompt(EngineClock::now());
  if (choice.index() > 0 || choice.open().choices() == 1) return;
  choice.each_sequence([&](ScheduledSequence& sequence) { sequence.publish(cache_, true); });
  choice.answers().stop_waiting();
}

}  // namespace bl
