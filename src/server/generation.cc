#include "server/generation.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "server/error_shape.h"

namespace bl::server {
namespace {

// A client that has not taken this many bytes gets no more for now.
constexpr std::size_t kMostUnsent = std::size_t{256} << 10;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Generation::Generation(Args args)
    : args_(std::move(args)), meter_(dynamic_cast<AnswerMeter*>(args_.to.get())) {}

void Generation::start() {
  if (!args_.model->generates()) {
    throw HttpError(501, "not_supported",
                    "this server only embeds texts; start it without --embeddings to have it "
                    "generate some");
  }
  last_sent_ = now_ms();
  const std::scoped_lock lock(mutex_);
  sampling_ = args_.requests.front().sampling;
  handles_.reserve(args_.requests.size());
  for (Request& request : args_.requests) {
    unfinished_.push_back({.prompt_tokens = static_cast<std::int64_t>(request.prompt.size())});
    std::optional<RequestHandle> handle = args_.model->engine().try_submit(std::move(request));
    if (!handle) {
      throw HttpError(503, "overloaded", "the model's queue is full; try again later");
    }
    handles_.push_back(std::move(*handle));
  }
  args_.requests.clear();
  open_ = handles_.size();
  const std::weak_ptr<Generation> self = weak_from_this();
  // The exchange's watcher keeps this object alive; it is dropped when the answer is over.
  args_.to->watch([owner = shared_from_this()] { owner->schedule(); });
  bool ready = false;
  for (RequestHandle& handle : handles_) {
    ready |= handle.set_ready_callback([self] {
      if (const auto owner = self.lock()) owner->schedule();
    });
  }
  if (ready) schedule();
}

void Generation::schedule() {
  if (over() || scheduled_.exchange(true)) return;
  args_.queue->post([self = shared_from_this()] { self->pump(); });
}

void Generation::pump() {
  scheduled_ = false;
  const std::scoped_lock lock(mutex_);
  if (over()) return;
  try {
    if (args_.to->gone()) return finish();
    if (!read_events()) return;
    args_.reply->on_end(*args_.to);
  } catch (const Error& error) {
    args_.reply->on_error(error, *args_.to);
  } catch (const std::exception& failure) {
    log_warning("an answer could not be written: {}", failure.what());
    args_.reply->on_error(Error(ErrorCode::kIo, "internal error"), *args_.to);
  }
  finish();
}

// Returns true when all requests are over.
bool Generation::read_events() {
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    RequestHandle& handle = handles_[i];
    while (!handle.over()) {
      if (args_.to->unsent() > kMostUnsent) return false;
      std::optional<Event> event = handle.next(std::chrono::milliseconds(0));
      if (!event) break;
      unfinished_[i].generated_tokens += static_cast<std::int64_t>(event->ids.size());
      if (event->finish && meter_ != nullptr) {
        meter_->on_answer(*args_.model, *event);
        unfinished_[i].generated_tokens -= event->usage.generated_tokens;
        if (event->choice == 0) unfinished_[i].prompt_tokens = 0;
      }
      args_.reply->on_event(i, std::move(*event), *args_.to);
      last_sent_.store(now_ms(), std::memory_order_relaxed);
      if (handle.over()) --open_;
    }
  }
  return open_ == 0;
}

// Tells the meter of the requests that end here.
void Generation::meter_unfinished() {
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    if (handles_[i].over()) continue;
    Event last;
    last.finish = FinishReason::kCancelled;
    last.usage.prompt_tokens = unfinished_[i].prompt_tokens;
    last.usage.generated_tokens = std::max<std::int64_t>(unfinished_[i].generated_tokens, 0);
    meter_->on_answer(*args_.model, last);
  }
}

// Ends the requests that still run.
void Generation::finish() {
  over_ = true;
  if (meter_ != nullptr) meter_unfinished();
  handles_.clear();
  args_.to->watch(nullptr);
  args_.to.reset();
}

void Generation::cancel() {
  const std::scoped_lock lock(mutex_);
  for (RequestHandle& handle : handles_) handle.cancel();
}

SamplingParams Generation::sampling() const {
  const std::scoped_lock lock(mutex_);
  return sampling_;
}

void Generation::change_sampling(const SamplingParams& sampling) {
  const std::scoped_lock lock(mutex_);
  for (const RequestHandle& handle : handles_) {
    if (!handle.over()) args_.model->engine().change_sampling(handle, sampling);
  }
  sampling_ = sampling;
}

void Generation::tick(std::chrono::seconds quiet) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || over()) return;
  if (now_ms() - last_sent_ < std::chrono::milliseconds(quiet).count()) return;
  if (args_.reply->on_quiet(*args_.to)) last_sent_ = now_ms();
}

}  // namespace bl::server
