#include "engine/row_sampler.h"

#include <atomic>
#include <limits>
#include <new>

#include "base/thread_pool.h"
#include "sample/guidance.h"

namespace bl {
namespace {

// Below so many logits in all, waking threads costs more than they save.
constexpr std::size_t kShared = 1 << 16;

TokenLogprobs taken(const TopLogProbabilities& best, const RowTask& task) {
  // A prompt may hold ids that the head does not have.
  const bool in_row = static_cast<std::size_t>(task.id) < task.logits.size();
  const double own = in_row ? best.of(task.id) : -std::numeric_limits<double>::infinity();
  TokenLogprobs out{{task.id, static_cast<float>(own)}, {}};
  for (const TokenLogProbability& token : best.top()) {
    out.best.push_back({token.id, static_cast<float>(token.value)});
  }
  return out;
}

}  // namespace

RowSampler::RowSampler(ThreadPool* threads)
    : threads_(threads),
      rooms_(static_cast<std::size_t>(threads == nullptr ? 1 : threads->threads())) {}

void RowSampler::choose(RowTask& task, Room& room) {
  PickArgs args{.logits = task.logits,
                .history = task.history,
                .position = task.history.size(),
                .generated = task.generated,
                .end_tokens = task.end_tokens,
                .barred = task.barred,
                .mask = task.constraint == nullptr ? task.mask : task.constraint->mask()};
  if (!task.negative.empty()) {
    room.guided.resize(task.logits.size());
    mix_guidance(task.logits, task.negative, task.sampler->params().cfg_scale, room.guided);
    args.logits = room.guided;
  }
  if (task.sampler == nullptr) {
    task.id = task.known;
  } else if (task.alternatives < 0 || !task.after_chain) {
    task.id = task.sampler->pick(args, room.row).id;
  } else {
    // The distribution as it was before the choice moved the state.
    const SamplerState before = task.sampler->state();
    task.id = task.sampler->pick(args, room.row).id;
    const SamplerState after = task.sampler->state();
    task.sampler->restore(before);
    task.sampler->find_distribution(args, room.row);
    task.sampler->restore(after);
    room.best.find(room.row, static_cast<std::size_t>(task.alternatives));
    task.logprobs = taken(room.best, task);
  }
  if (task.constraint != nullptr) {
    task.constraint->accept(task.id);
    task.satisfied = task.constraint->finished();
  }
  if (task.alternatives < 0 || (task.after_chain && task.sampler != nullptr)) return;
  room.best.find(task.logits, static_cast<std::size_t>(task.alternatives));
  task.logprobs = taken(room.best, task);
}

// An Error ends here, as it does at a route of the server: it is the answer to one request.
void RowSampler::choose_or_tell(RowTask& task, Room& room) {
  if (task.id >= 0) return;
  try {
    choose(task, room);
  } catch (const Error& error) {
    task.error = error.what();
    task.code = error.code();
  } catch (const std::bad_alloc&) {
    task.error = "out of memory while a token was being chosen";
    task.code = ErrorCode::kOutOfMemory;
  }
}

void RowSampler::choose_in_order(std::span<RowTask> tasks, Room& room) {
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (i > 0 && tasks[i - 1].id != tasks[i].follows) return;
    choose_or_tell(tasks[i], room);
    if (!tasks[i].error.empty()) return;
    if (tasks.size() > 1) tasks[i].state = tasks[i].sampler->state();
    if (tasks[i].satisfied) return;
  }
}

void RowSampler::run(std::span<RowTask> tasks) {
  std::size_t logits = 0;  // to look at
  heads_.clear();
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (i == 0 || tasks[i].follows < 0) heads_.push_back(i);
    logits += tasks[i].id < 0 ? tasks[i].logits.size() : 0;
  }
  const auto run_from = [&](std::size_t head, Room& room) {
    const std::size_t end = head + 1 < heads_.size() ? heads_[head + 1] : tasks.size();
    choose_in_order(tasks.subspan(heads_[head], end - heads_[head]), room);
  };
  if (threads_ == nullptr || heads_.size() < 2 || logits < kShared) {
    for (std::size_t i = 0; i < heads_.size(); ++i) run_from(i, rooms_.front());
    return;
  }
  std::atomic<std::size_t> next{0};
  threads_->run_any([&](int thread) {
    Room& room = rooms_[static_cast<std::size_t>(thread)];
    for (std::size_t i = next++; i < heads_.size(); i = next++) run_from(i, room);
  });
}

}  // namespace bl
