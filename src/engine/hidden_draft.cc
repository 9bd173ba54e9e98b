#include "engine/hidden_draft.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/kept_samplers.h"
#include "engine/sequence.h"

namespace bl {
namespace {

using Clock = std::chrono::steady_clock;

// Weight of a new measurement of a block.
constexpr double kNewBlock = 0.2;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Where one text is while its block becomes guesses.
struct Drawn {
  std::vector<std::int32_t> history;
  std::int64_t first_row = 0;
  bool over = false;
};

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

// The first step of a process takes several times as long as others; made here, no answer waits for
// it, and whether guessing may pay is known before the first one.
void HiddenDraft::measure_price() {
  Sequence sequence(target_->pool());
  sequence.reach = facts_.context;
  sequence.ids.assign(2, 0);
  if (!sequence.pages.reserve(1 + slots_behind())) return;
  const StepItem read{.sequence = &sequence, .count = 1};
  target_->run({&read, 1});
  const StepItem item{.sequence = &sequence, .count = 1, .logits = LogitRows::kAll};
  target_->draft({&item, 1});
  const auto start = Clock::now();
  target_->draft({&item, 1});
  block_seconds_ = seconds_since(start);
}

void HiddenDraft::propose(std::span<DraftJob> jobs) {
  std::vector<DraftJob*> group;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  const auto run = [&] {
    if (!group.empty()) guess(group);
    group.clear();
    tokens = rows = 0;
  };
  KeptSamplers samplers;
  for (DraftJob& job : jobs) {
    job.ids.clear();
    job.confidence = 0;
    job.most = std::min({job.most, facts_.draft_tokens, facts_.logit_rows});
    const bool known = job.text.back() < facts_.ids;
    if (job.sequence == nullptr || !known || job.most < 1 || slots_behind() > facts_.step_tokens) {
      continue;
    }
    samplers.keep(*job.sampler);
    if (tokens + slots_behind() > facts_.step_tokens || rows + job.most > facts_.logit_rows) run();
    group.push_back(&job);
    tokens += slots_behind();
    rows += job.most;
  }
  run();
}

// One forward of the side layers, for as many texts as it has room for.
void HiddenDraft::guess(std::span<DraftJob* const> jobs) {
  items_.clear();
  for (const DraftJob* job : jobs) {
    // What a guess is drawn from may depend on the guesses before it, which no step knows.
    const bool chosen = job->chosen_by_model && !needs_history(job->sampler->params());
    items_.push_back({.sequence = job->sequence,
                      .count = job->most,
                      .logits = LogitRows::kAll,
                      .sampling = chosen ? &job->sampler->params() : nullptr,
                      .seed = job->sampler->seed()});
  }
  const auto start = Clock::now();
  const StepOutput output = target_->draft(items_);
  take_rows(jobs, output);
  const double seconds = seconds_since(start);
  block_seconds_ += (block_seconds_ == 0 ? 1 : kNewBlock) * (seconds - block_seconds_);
}

// Rows of one text are drawn in order, since a sampler may look at what it has drawn; all texts'
// first rows together, then their second ones.
void HiddenDraft::take_rows(std::span<DraftJob* const> jobs, const StepOutput& output) {
  std::vector<Drawn> drawn(jobs.size());
  std::int64_t rows = 0;
  std::int64_t deepest = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    drawn[i].history.assign(jobs[i]->text.begin(), jobs[i]->text.end());
    drawn[i].first_row = rows;
    rows += jobs[i]->most;
    deepest = std::max(deepest, jobs[i]->most);
  }
  std::vector<RowTask> tasks;
  for (std::int64_t depth = 0; depth < deepest; ++depth) {
    tasks.assign(jobs.size(), {});
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      DraftJob& job = *jobs[i];
      drawn[i].over = drawn[i].over || depth >= job.most;
      if (drawn[i].over) continue;
      const std::int64_t row = drawn[i].first_row + depth;
      if (output.chose(row)) {
        tasks[i].id = output.ids[static_cast<std::size_t>(row)];
        continue;
      }
      tasks[i].logits = output.logits.row(row);
      tasks[i].sampler = job.sampler;
      tasks[i].history = drawn[i].history;
      tasks[i].generated = job.generated + depth;
      tasks[i].end_tokens = job.end_tokens;
    }
    row_sampler_->run(tasks);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (drawn[i].over) continue;
      const std::int32_t id = tasks[i].id;
      // A damaged row is no guess; neither is what the model cannot read.
      drawn[i].over = tasks[i].error || id < 0 || id >= facts_.ids;
      if (drawn[i].over) continue;
      jobs[i]->ids.push_back(id);
      drawn[i].history.push_back(id);
      drawn[i].over = is_end(jobs[i]->end_tokens, id);
    }
  }
}

}  // namespace bl
