// EngineCore: from the rows of a step to the tokens of answers.
#include <algorithm>
#include <utility>

#include "engine/engine_core.h"
#include "engine/guided_choice.h"

namespace bl {
namespace {

// Whether the model has chosen, and no guess stands behind the row.
bool is_settled(std::span<const RowTask> tasks, std::size_t i) {
  const bool guessed = tasks[i].follows >= 0 || (i + 1 < tasks.size() && tasks[i + 1].follows >= 0);
  return tasks[i].id >= 0 && !guessed;
}

}  // namespace

void EngineCore::take_rows(const StepOutput& output) {
  tasks_.clear();
  std::vector<Choice*> owners;  // of each task
  const auto add_task = [&](Choice& owner, RowTask task) {
    tasks_.push_back(std::move(task));
    owners.push_back(&owner);
  };
  std::int64_t row = 0;
  for (const ComputedItem& c : computed_) {
    const bool lost = c.rows == LogitRows::kLast && c.chosen_by_model && output.lost(row);
    if (c.choice == nullptr || lost) {
      if (c.choice != nullptr) compute_again(c);
      ++row;  // what is dropped or lost was repeated: one row
      continue;
    }
    Choice& choice = *c.choice;
    const SamplingParams& sampling = choice.sampler.params();
    const std::int64_t end = c.begin + c.count;
    const std::int64_t first = c.rows == LogitRows::kNone   ? end
                               : c.rows == LogitRows::kLast ? end - 1
                                                            : c.begin;
    if (choice.over) row += end - first;
    for (std::int64_t token = first; token < end && !choice.over; ++token, ++row) {
      RowTask task;
      if (output.chose(row)) {
        task.id = output.ids[static_cast<std::size_t>(row)];
        task.logprobs.token = {task.id, output.log_probability(row)};
      } else {
        task.logits = output.logits.row(row);
      }
      if (token + 1 < choice.length()) {
        task.known = choice.sequence.ids[static_cast<std::size_t>(token) + 1];
        task.alternatives = static_cast<std::int32_t>(sampling.prompt_logprobs);
      } else if (is_guided(choice)) {
        choice.rows.push_back(task.logits);
        continue;
      } else {
        fill_task(choice, token + 1, task);
      }
      add_task(choice, std::move(task));
    }
    if (!is_guided(choice)) continue;
    Choice& answer = answer_of(choice);
    std::int64_t place = answer.length();
    for (RowTask& pair : pair_rows(answer)) {
      fill_task(answer, place++, pair);
      add_task(answer, std::move(pair));
    }
  }
  for (const ComputedItem& c : computed_) {
    if (c.choice != nullptr) attempt(*c.choice, [&, &choice = *c.choice] { keep_row(choice); });
  }
  const auto take = [&](std::size_t i) {
    Choice& owner = *std::exchange(owners[i], nullptr);
    attempt(owner, [&] { take_task(owner, tasks_[i]); });
  };
  // Readers of what the model has chosen don't wait for what the host chooses for others.
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (is_settled(tasks_, i)) take(i);
  }
  row_sampler_.run(tasks_);
  for (const ComputedItem& c : computed_) {
    if (c.choice != nullptr) c.choice->remove_drafts();
  }
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] != nullptr) take(i);
  }
}

// A row that the model could make nothing of, and whose logits are gone: the host looks at it.
void EngineCore::compute_again(const ComputedItem& item) {
  ahead_.drop(*item.choice);
  item.choice->device_sampled = false;
  item.choice->sequence.cached = item.begin;
}

// What decides which token comes to stand at `place` of an answer's text, or behind its guesses.
void EngineCore::fill_task(Choice& choice, std::int64_t place, RowTask& task) const {
  const SamplingParams& sampling = choice.sampler.params();
  task.sampler = &choice.sampler;
  task.history = first_ids(choice.sequence, place);
  task.generated = place - choice.prompt_tokens();
  if (place > choice.length()) task.follows = task.history.back();
  task.end_tokens = end_tokens(choice);
  task.constraint = choice.constraint.get();
  if (choice.held) task.barred = choice.held->barred(place);
  if (choice.healing.active()) {
    task.mask = choice.healing.prompt->mask(choice.healing.done);
  } else if (choice.open->request.after_sampling) {
    task.hook = &choice.open->request.after_sampling;
    task.shows_candidates = choice.open->request.hook_candidates;
    task.choice = choice.index;
  }
  if (sampling.logprobs) task.alternatives = static_cast<std::int32_t>(sampling.top_logprobs);
  if (choice.open->held) task.alternatives = std::max(task.alternatives, 0);
  task.after_chain = sampling.logprobs_after;
}

void EngineCore::take_task(Choice& choice, RowTask& task) {
  if (choice.over) return;
  if (task.follows >= 0) {
    // Behind a guess that was wrong, or a text that went back, a row says nothing.
    const auto place = static_cast<std::int64_t>(task.history.size());
    if (choice.length() != place || choice.sequence.ids.back() != task.follows) return;
    choice.sequence.cached = place;
    if (choice.guide != nullptr) choice.guide->sequence.cached = choice.guide->length();
    choice.accept_guess();
  }
  if (task.state) choice.sampler.restore(*task.state);
  if (task.error) return end_with(choice, *task.error);
  if (task.sampler == nullptr) {
    choice.prompt_logprobs.push_back(std::move(task.logprobs));
    return;
  }
  if (std::string error = pin(choice); !error.empty()) {
    return finish(choice, {FinishReason::kError, ErrorCode::kLimit, std::move(error)});
  }
  for (Choice* part : {&choice, choice.guide}) {
    if (part != nullptr && !part->prompt_told) prompt_is_computed(*part);
  }
  const std::optional<Ending> ending =
      accept_token(choice, cache_,
                   {.id = task.id,
                    .logprobs = task.alternatives >= 0 ? &task.logprobs : nullptr,
                    .logits = task.logits,
                    .is_end = is_end(choice, task.id),
                    .satisfied = task.satisfied});
  if (ending) finish(choice, *ending);
}

bool EngineCore::is_end(const Choice& choice, std::int32_t id) const {
  const auto holds = [id](std::span<const std::int32_t> ids) {
    return std::binary_search(ids.begin(), ids.end(), id);
  };
  return holds(choice.open->request.sampling.stop_tokens) || holds(end_tokens(choice));
}

std::span<const std::int32_t> EngineCore::end_tokens(const Choice& choice) const {
  if (choice.open->request.ignore_end_tokens) return {};
  return options_.end_tokens;
}

// Keeps a prompt that has just been computed, if that is asked for; says why it cannot.
std::string EngineCore::pin(Choice& choice) {
  const OpenRequest& open = *choice.open;
  if (open.request.pin.empty() || choice.prompt_told || choice.index > 0) return {};
  publish(choice, false);  // so that the pages that it holds are those that others find
  const Sequence& sequence = choice.sequence;
  return pins_.pin(open.request.pin, open.salt, first_ids(sequence, sequence.cached),
                   sequence.pages.pages());
}

void EngineCore::prompt_is_computed(Choice& choice) {
  const OpenRequest& open = *choice.open;
  choice.prompt_told = true;
  choice.first_token = EngineClock::now();
  choice.usage.prefill_seconds = seconds_between(choice.admitted, choice.first_token);
  if (choice.main == nullptr) {
    open.sink().push({.choice = choice.index,
                      .prompt_logprobs = std::move(choice.prompt_logprobs),
                      .prompt_done = choice.length()});
  }
  if (choice.index > 0) return;
  if (open.choices() == 1) return;
  publish(choice, true);
  free_siblings(choice);
}

}  // namespace bl
