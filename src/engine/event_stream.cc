#include "engine/event_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace bl {
namespace {

// Makes room for `more` items, and grows geometrically as push_back() does.
template <class T>
void make_room(T& to, std::size_t more) {
  const std::size_t wanted = to.size() + more;
  if (wanted > to.capacity()) to.reserve(std::max(wanted, 2 * to.capacity()));
}

template <class T>
void make_room(std::vector<T>& to, const std::vector<T>& from) {
  if (!to.empty()) make_room(to, from.size());
}

// Throws nothing where make_room() has been called before.
template <class T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  if (to.empty()) {
    to = std::move(from);
    return;
  }
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void Waker::wake() {
  {
    const std::lock_guard lock(mutex_);
    called_ = true;
  }
  changed_.notify_one();
}

void Waker::wait_until(std::optional<std::chrono::steady_clock::time_point> time) {
  std::unique_lock lock(mutex_);
  const auto called = [&] { return called_; };
  if (time) {
    changed_.wait_until(lock, *time, called);
  } else {
    changed_.wait(lock, called);
  }
  called_ = false;
}

EventStream::EventStream(std::int32_t choices, std::shared_ptr<Waker> waker)
    : waker_(std::move(waker)),
      pending_(std::make_unique<Pending[]>(static_cast<std::size_t>(choices))),
      choices_(static_cast<std::size_t>(choices)) {
  for (std::size_t i = 0; i < choices_; ++i) {
    pending_[i].event.choice = static_cast<std::int32_t>(i);
  }
}

// The reader is called for the first event after it has taken everything, since events that follow
// are merged or found by the same look; and for the end, so that no reader misses it.
bool EventStream::announce(Pending& pending) {
  const bool is_first = fresh_ == 0;
  if (!pending.fresh) ++fresh_;
  pending.fresh = true;
  if (pending.is_last) ++ended_;
  if (readers_ > 0) arrived_.notify_one();
  return is_first || ended_ == choices_;
}

void EventStream::push(Event event) {
  if (add(std::move(event))) ready_.call();
}

void EventStream::push_token(std::int32_t choice, std::int32_t id, std::string_view text) {
  if (add_token(choice, id, text)) ready_.call();
}

void EventStream::end_without_memory(std::int32_t choice, const Usage& usage) noexcept {
  if (add_end(choice, usage)) ready_.call();
}

bool EventStream::add(Event event) {
  const std::lock_guard lock(mutex_);
  Pending& pending = pending_[static_cast<std::size_t>(event.choice)];
  BL_CHECK(!pending.is_last);
  Event& into = pending.event;
  make_room(into.text, event.text.size());
  make_room(into.ids, event.ids);
  make_room(into.logprobs, event.logprobs);
  make_room(into.prompt_logprobs, event.prompt_logprobs);
  make_room(into.healed, event.healed);
  make_room(into.healed_logprobs, event.healed_logprobs);
  make_room(into.suppressed, event.suppressed);
  make_room(into.logits, event.logits);
  std::size_t tokens = event.ids.size();
  for (const WithheldText& one : event.suppressed) tokens += one.ids.size();
  pending.unread.fetch_add(static_cast<std::int64_t>(tokens), std::memory_order_relaxed);
  into.text += event.text;
  append(into.ids, std::move(event.ids));
  append(into.logprobs, std::move(event.logprobs));
  append(into.prompt_logprobs, std::move(event.prompt_logprobs));
  if (!event.healed.empty()) into.kept = event.kept;
  append(into.healed, std::move(event.healed));
  append(into.healed_logprobs, std::move(event.healed_logprobs));
  append(into.suppressed, std::move(event.suppressed));
  append(into.logits, std::move(event.logits));
  if (event.started) into.started = event.started;
  if (event.prompt_done > 0) into.prompt_done = event.prompt_done;
  if (event.finish) {
    pending.is_last = true;
    into.finish = event.finish;
    into.stop_string = std::move(event.stop_string);
    into.end_token = std::move(event.end_token);
    into.held = std::move(event.held);
    into.usage = event.usage;
    into.draft_rounds = std::move(event.draft_rounds);
    into.code = event.code;
    into.error = std::move(event.error);
  }
  return announce(pending);
}

bool EventStream::add_end(std::int32_t choice, const Usage& usage) {
  const std::lock_guard lock(mutex_);
  Pending& pending = pending_[static_cast<std::size_t>(choice)];
  if (pending.is_last) return false;
  pending.is_last = true;
  Event& into = pending.event;
  into.finish = FinishReason::kError;
  into.usage = usage;
  into.code = ErrorCode::kOutOfMemory;
  into.error = kNoMemory;
  return announce(pending);
}

bool EventStream::add_token(std::int32_t choice, std::int32_t id, std::string_view text) {
  const std::lock_guard lock(mutex_);
  Pending& pending = pending_[static_cast<std::size_t>(choice)];
  make_room(pending.event.text, text.size());
  pending.event.ids.push_back(id);
  pending.event.text += text;
  pending.unread.fetch_add(1, std::memory_order_relaxed);
  return announce(pending);
}

std::int64_t EventStream::unread(std::int32_t choice) const {
  return pending_[static_cast<std::size_t>(choice)].unread.load(std::memory_order_relaxed);
}

std::optional<Event> EventStream::take() {
  for (std::size_t i = 0; i < choices_; ++i) {
    const std::size_t choice = (turn_ + i) % choices_;
    Pending& pending = pending_[choice];
    if (!pending.fresh) continue;
    turn_ = (choice + 1) % choices_;
    pending.fresh = false;
    --fresh_;
    pending.unread.store(0, std::memory_order_relaxed);
    if (pending.is_last) ++taken_;
    Event out = std::exchange(pending.event, {});
    pending.event.choice = out.choice;
    return out;
  }
  return std::nullopt;
}

std::optional<Event> EventStream::next(Deadline deadline) {
  std::optional<Event> event;
  {
    std::unique_lock lock(mutex_);
    const auto ready = [&] {
      event = take();
      return event.has_value() || taken_ == choices_;
    };
    const bool may_wait = !deadline || *deadline > std::chrono::steady_clock::now();
    if (!ready() && may_wait) {
      ++readers_;
      if (deadline) {
        arrived_.wait_until(lock, *deadline, ready);
      } else {
        arrived_.wait(lock, ready);
      }
      --readers_;
    }
    // Nothing will follow, so every other reader that waits may go.
    if (taken_ == choices_) arrived_.notify_all();
  }
  // The choice may have been paused because this reader was far behind.
  if (event && !(event->ids.empty() && event->suppressed.empty())) waker_->wake();
  return event;
}

bool EventStream::over() const {
  const std::lock_guard lock(mutex_);
  return taken_ == choices_;
}

void EventStream::cancel() {
  cancelled_.store(true, std::memory_order_relaxed);
  waker_->wake();
}

bool EventStream::set_ready_callback(std::function<void()> callback) {
  // Set before looking: an event that comes in between is announced twice, not never.
  ready_.set(std::move(callback));
  const std::lock_guard lock(mutex_);
  return fresh_ > 0 || taken_ == choices_;
}

}  // namespace bl
