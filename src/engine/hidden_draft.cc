#include "engine/hidden_draft.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/seconds_since.h"
#include "engine/kept_samplers.h"
#include "engine/sequence.h"

namespace bl {
namespace {

using Clock = std::chrono::steady_clock;

// The weight of a new measurement.
constexpr double kNewPrice = 0.2;

void add_price(double& mean, double seconds) {
  mean += (mean == 0 ? 1 : kNewPrice) * (seconds - mean);
}

}  // namespace

void HiddenDraft::attach(StepModel& target) {
  target_ = &target;
  facts_ = target.facts();
  if (facts_.draft_tokens < 1) {
    fail(ErrorCode::kInvalidArgument, "the model has no layers that guess how its texts go on");
  }
  row_sampler_ = std::make_unique<RowSampler>(target.threads());
  measure_price();
}

// The first step of a process takes several times as long as later ones. Making it here keeps
// answers from waiting for it, and tells whether guessing may pay before there are any.
void HiddenDraft::measure_price() {
  Sequence sequence(target_->pool());
  sequence.reach = facts_.context;
  sequence.ids.assign(2, 0);
  if (!sequence.pages.reserve(1 + slots_behind())) return;
  const StepItem read{.sequence = &sequence, .count = 1};
  target_->run({&read, 1});
  const StepItem item{.sequence = &sequence,
                      .count = 1,
                      .logits = facts_.draft_chains ? LogitRows::kLast : LogitRows::kAll};
  target_->draft({&item, 1});
  const auto start = Clock::now();
  target_->draft({&item, 1});
  (facts_.draft_chains ? round_seconds_ : fixed_seconds_) = seconds_since(start);
}

// A step item that asks for `count` guesses behind the job's text.
StepItem HiddenDraft::item_of(const DraftJob& job, std::int64_t count) const {
  // Penalties depend on the guesses before, which the model does not know when the step begins.
  const bool chosen = job.chosen_by_model && !needs_history(job.sampler->params());
  return {.sequence = job.sequence,
          .count = count,
          .logits = facts_.draft_chains ? LogitRows::kLast : LogitRows::kAll,
          .sampling = chosen ? &job.sampler->params() : nullptr,
          .seed = job.sampler->seed()};
}

void HiddenDraft::propose(std::span<DraftJob> jobs) {
  KeptSamplers samplers;
  texts_.clear();
  const std::int64_t tokens = facts_.draft_chains ? 1 : slots_behind();
  for (DraftJob& job : jobs) {
    job.ids.clear();
    job.confidence = 0;
    job.most = std::min({job.most, facts_.draft_tokens, facts_.logit_rows});
    const bool known = job.text.back() < facts_.ids;
    if (job.sequence == nullptr || !known || job.most < 1 || tokens > facts_.step_tokens) continue;
    samplers.keep(*job.sampler);
    texts_.push_back({&job, {job.text.begin(), job.text.end()}});
  }
  // Groups as large as a step has room for.
  for (std::size_t begin = 0; begin < texts_.size();) {
    std::int64_t rows = 0;
    std::size_t end = begin;
    for (; end < texts_.size(); ++end) {
      const std::int64_t more = facts_.draft_chains ? 1 : texts_[end].job->most;
      const auto count = static_cast<std::int64_t>(end - begin) + 1;
      if (count * tokens > facts_.step_tokens || rows + more > facts_.logit_rows) break;
      rows += more;
    }
    const std::span<Text> group = std::span(texts_).subspan(begin, end - begin);
    facts_.draft_chains ? guess_in_turn(group) : guess_at_once(group);
    begin = end;
  }
}

// One forward pass gives all guesses. The rows of a text are drawn in order, since a sampler may
// depend on what it has drawn: first the first rows of all texts, then their second ones, and so
// on.
void HiddenDraft::guess_at_once(std::span<Text> texts) {
  items_.clear();
  std::int64_t rows = 0;
  std::int64_t deepest = 0;
  for (Text& text : texts) {
    items_.push_back(item_of(*text.job, text.job->most));
    text.row = rows;
    rows += text.job->most;
    deepest = std::max(deepest, text.job->most);
  }
  const auto start = Clock::now();
  const StepOutput output = target_->draft(items_);
  for (std::int64_t depth = 0; depth < deepest; ++depth) {
    draw(texts, output);
    for (Text& text : texts) ++text.row;
  }
  add_price(fixed_seconds_, seconds_since(start));
}

// One forward pass per guess.
void HiddenDraft::guess_in_turn(std::span<Text> texts) {
  for (;;) {
    items_.clear();
    for (Text& text : texts) {
      if (text.over) continue;
      text.row = std::ssize(items_);
      items_.push_back(item_of(*text.job, std::ssize(text.job->ids) + 1));
      items_.back().guessed = text.job->ids;
    }
    if (items_.empty()) return;
    const auto start = Clock::now();
    draw(texts, target_->draft(items_));
    add_price(round_seconds_, seconds_since(start));
  }
}

// Draws the next guess of each text that goes on.
void HiddenDraft::draw(std::span<Text> texts, const StepOutput& output) {
  tasks_.assign(texts.size(), {});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Text& text = texts[i];
    if (text.over) continue;
    if (output.chose(text.row)) {
      tasks_[i].id = output.ids[static_cast<std::size_t>(text.row)];
      continue;
    }
    tasks_[i].logits = output.logits.row(text.row);
    tasks_[i].sampler = text.job->sampler;
    tasks_[i].history = text.history;
    tasks_[i].generated = text.job->generated + std::ssize(text.job->ids);
    tasks_[i].rewinds = text.job->rewinds;
    tasks_[i].end_tokens = text.job->end_tokens;
  }
  row_sampler_->run(tasks_);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Text& text = texts[i];
    if (text.over) continue;
    const std::int32_t id = tasks_[i].id;
    // A damaged row gives no guess; an id that the model cannot read is none.
    text.over = tasks_[i].error || id < 0 || id >= facts_.ids;
    if (text.over) continue;
    text.job->ids.push_back(id);
    text.history.push_back(id);
    text.over = is_end(text.job->end_tokens, id) || std::ssize(text.job->ids) >= text.job->most;
  }
}

}  // namespace bl
