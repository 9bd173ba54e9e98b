#include "engine/row_sampler.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <numeric>

#include "base/thread_pool.h"
#include "engine/caught_error.h"
#include "sample/guidance.h"

namespace bl {
namespace {

// With fewer logits in all, waking threads costs more than they save.
constexpr std::size_t kShared = 1 << 16;

TokenLogprobs taken(const TopLogProbabilities& best, const RowTask& task, std::size_t tokens) {
  // A prompt may hold ids for which the head has no logits.
  const bool in_row = static_cast<std::size_t>(task.id) < tokens;
  const double own = in_row ? best.of(task.id) : -std::numeric_limits<double>::infinity();
  TokenLogprobs out{{task.id, static_cast<float>(own)}, {}};
  for (const TokenLogProbability& token : best.top()) {
    out.best.push_back({token.id, static_cast<float>(token.value)});
  }
  return out;
}

// Asks the hook. What it throws is an error of its request.
std::int32_t ask(const TokenHook& hook, const SampledToken& token, std::size_t vocab) {
  std::int32_t id = token.id;
  try {
    id = hook(token);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    std::string what = error.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    fail(ErrorCode::kInvalidArgument, "after_sampling: {}", what);
  }
  if (id < 0 || static_cast<std::size_t>(id) >= vocab) {
    fail(ErrorCode::kInvalidArgument,
         "after_sampling has returned token {} at position {}, the model's tokens are 0 … {}", id,
         token.position, vocab - 1);
  }
  return id;
}

// Whether an end token may be chosen as token number `generated` of the answer.
bool ends_come(const RowTask& task, std::int64_t generated) {
  const SamplingParams& params = task.sampler->params();
  if (generated < params.min_tokens) return false;
  return !params.ban_end_tokens || !params.stop_tokens.empty();
}

}  // namespace

RowSampler::RowSampler(ThreadPool* threads, std::size_t tokens)
    : threads_(threads),
      tokens_(tokens),
      rooms_(static_cast<std::size_t>(threads == nullptr ? 1 : threads->threads())) {}

// The distribution that the last pick in this room was drawn from.
std::span<const TokenProbability> RowSampler::find_candidates(const RowTask& task, Room& room) {
  task.sampler->recall_distribution(room.row);
  const SampleRow& row = room.row;
  const double total = std::accumulate(row.weights.begin(), row.weights.end(), 0.0);
  room.candidates.clear();
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row.weights[i] == 0) continue;
    room.candidates.push_back({row.ids[i], static_cast<double>(row.weights[i]) / total});
  }
  return room.candidates;
}

std::int32_t RowSampler::pick(const RowTask& task, const PickArgs& args, Room& room) {
  const Pick drawn = task.sampler->pick(args, room.row);
  if (task.hook == nullptr) return drawn.id;
  SampledToken token{.id = drawn.id,
                     .probability = drawn.probability,
                     .position = static_cast<std::int64_t>(args.position),
                     .history = task.history,
                     .choice = task.choice,
                     .logits = task.logits.first(args.logits.size())};
  if (task.shows_candidates) token.candidates = find_candidates(task, room);
  return ask(*task.hook, token, args.logits.size());
}

void RowSampler::choose(RowTask& task, Room& room) const {
  const std::size_t tokens = std::min(tokens_, task.logits.size());
  const std::span<const float> logits = task.logits.first(tokens);
  PickArgs args{.logits = logits,
                .history = task.history,
                .position = task.history.size(),
                .generated = task.generated,
                .rewinds = task.rewinds,
                .end_tokens = task.end_tokens,
                .barred = task.barred,
                .mask = task.mask};
  if (task.constraint != nullptr) {
    args.mask = task.constraint->mask(ends_come(task, task.generated));
  }
  if (!task.negative.empty()) {
    room.guided.resize(tokens);
    mix_guidance(logits, task.negative.first(tokens), task.sampler->params().cfg_scale,
                 room.guided);
    args.logits = room.guided;
  }
  if (task.sampler == nullptr) {
    task.id = task.known;
  } else if (task.alternatives < 0 || !task.after_chain) {
    task.id = pick(task, args, room);
  } else {
    // The distribution in the state before the choice.
    const SamplerState before = task.sampler->state();
    task.id = pick(task, args, room);
    const SamplerState after = task.sampler->state();
    task.sampler->restore(before);
    task.sampler->find_distribution(args, room.row);
    task.sampler->restore(after);
    room.best.find(room.row, static_cast<std::size_t>(task.alternatives));
    task.logprobs = taken(room.best, task, tokens);
  }
  if (task.constraint != nullptr) {
    task.constraint->accept(task.id);
    task.satisfied = task.constraint->finished(ends_come(task, task.generated + 1));
  }
  if (task.alternatives < 0 || (task.after_chain && task.sampler != nullptr)) return;
  room.best.find(logits, static_cast<std::size_t>(task.alternatives));
  task.logprobs = taken(room.best, task, tokens);
}

// Exceptions end here: each is the end of one request.
void RowSampler::choose_or_tell(RowTask& task, Room& room) const {
  if (task.id >= 0) return;
  try {
    choose(task, room);
  } catch (const std::exception&) {
    task.error = caught_error();
  }
}

void RowSampler::choose_in_order(std::span<RowTask> tasks, Room& room) const {
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (i > 0 && tasks[i - 1].id != tasks[i].follows) return;
    choose_or_tell(tasks[i], room);
    if (tasks[i].error) return;
    if (tasks.size() > 1) tasks[i].state = tasks[i].sampler->state();
    if (tasks[i].satisfied) return;
  }
}

void RowSampler::run(std::span<RowTask> tasks) {
  std::size_t logits = 0;  // in the rows that are to be chosen from
  heads_.clear();
  hooked_.clear();
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    logits += tasks[i].id < 0 ? tasks[i].logits.size() : 0;
    if (i > 0 && tasks[i].follows >= 0) continue;
    (tasks[i].hook != nullptr ? hooked_ : heads_).push_back(i);
  }
  const auto run_from = [&](std::size_t head, Room& room) {
    std::size_t end = head + 1;
    while (end < tasks.size() && tasks[end].follows >= 0) ++end;
    choose_in_order(tasks.subspan(head, end - head), room);
  };
  for (const std::size_t head : hooked_) run_from(head, rooms_.front());
  if (threads_ == nullptr || heads_.size() < 2 || logits < kShared) {
    for (const std::size_t head : heads_) run_from(head, rooms_.front());
    return;
  }
  std::atomic<std::size_t> next{0};
  threads_->run_any([&](int thread) {
    Room& room = rooms_[static_cast<std::size_t>(thread)];
    for (std::size_t i = next++; i < heads_.size(); i = next++) run_from(heads_[i], room);
  });
}

}  // namespace bl
