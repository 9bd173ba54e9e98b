#include "engine/row_sampler.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

#include "base/thread_pool.h"
#include "sample/log_probability.h"

namespace bl {
namespace {

// Below so many logits in all, waking threads costs more than they save.
constexpr std::size_t kShared = 1 << 16;

void choose(RowTask& task, SampleRow& row) {
  if (task.sampler == nullptr) {
    task.id = task.known;
  } else {
    const PickArgs args{.logits = task.logits,
                        .history = task.history,
                        .position = task.history.size(),
                        .generated = task.generated,
                        .end_tokens = task.end_tokens};
    task.id = task.sampler->pick(args, row).id;
  }
  if (task.alternatives >= 0) {
    task.logprobs = logprobs_of(task.logits, task.id, task.alternatives);
  }
}

// An Error ends here, as it does at a route of the server: it is the answer to one request.
void choose_or_tell(RowTask& task, SampleRow& row) {
  try {
    choose(task, row);
  } catch (const Error& error) {
    task.error = error.what();
    task.code = error.code();
  } catch (const std::bad_alloc&) {
    task.error = "out of memory while a token was being chosen";
    task.code = ErrorCode::kOutOfMemory;
  }
}

}  // namespace

TokenLogprobs logprobs_of(std::span<const float> logits, std::int32_t id, std::int32_t count) {
  top_logit(logits);  // refuses what is not a distribution
  const double sum = log_sum_exp(logits);
  const auto chance = [&](std::int32_t token) {
    // A prompt may hold ids that the head does not have.
    const auto at = static_cast<std::size_t>(token);
    const float logit = at < logits.size() ? logits[at] : -std::numeric_limits<float>::infinity();
    return TokenChance{token, static_cast<float>(static_cast<double>(logit) - sum)};
  };
  TokenLogprobs out{chance(id), {}};
  // A heap of the best so far, the worst of them on top.
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::vector<std::int32_t> best;
  const auto wanted = std::min(static_cast<std::size_t>(count), logits.size());
  for (std::int32_t i = 0; wanted > 0 && i < static_cast<std::int32_t>(logits.size()); ++i) {
    if (best.size() == wanted) {
      if (!better(i, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), better);
      best.pop_back();
    }
    best.push_back(i);
    std::push_heap(best.begin(), best.end(), better);
  }
  std::sort(best.begin(), best.end(), better);
  for (const std::int32_t token : best) out.best.push_back(chance(token));
  return out;
}

RowSampler::RowSampler(ThreadPool* threads)
    : threads_(threads),
      rows_(static_cast<std::size_t>(threads == nullptr ? 1 : threads->threads())) {}

void RowSampler::run(std::span<RowTask> tasks) {
  const std::size_t vocab = tasks.empty() ? 0 : tasks.front().logits.size();
  if (threads_ == nullptr || tasks.size() < 2 || tasks.size() * vocab < kShared) {
    for (RowTask& task : tasks) choose_or_tell(task, rows_.front());
    return;
  }
  std::atomic<std::size_t> next{0};
  threads_->run_any([&](int thread) {
    SampleRow& row = rows_[static_cast<std::size_t>(thread)];
    for (std::size_t i = next++; i < tasks.size(); i = next++) choose_or_tell(tasks[i], row);
  });
}

}  // namespace bl
