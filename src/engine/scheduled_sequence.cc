#include "engine/scheduled_sequence.h"

#include <algorithm>
#include <new>
#include <utility>

#include "ops/kv_layout.h"

namespace bl {

ScheduledSequence::ScheduledSequence(Args args)
    : choice_(args.choice),
      open_(args.open),
      sequence_(args.pool),
      is_guide_(args.is_guide),
      every_row_(args.every_row) {
  sequence_.ids = std::move(args.prompt);
  sequence_.reach = open_.longest + open_.beyond;
}

void ScheduledSequence::append_guesses(std::span<const std::int32_t> ids) {
  BL_DCHECK(guesses_ == 0);
  sequence_.ids.insert(sequence_.ids.end(), ids.begin(), ids.end());
  guesses_ = std::ssize(ids);
}

void ScheduledSequence::remove_guesses() {
  sequence_.ids.resize(static_cast<std::size_t>(length()));
  guesses_ = 0;
}

void ScheduledSequence::cut(PrefixCache& cache, std::int64_t tokens) {
  shared_beginning_ = {};
  sequence_.ids.resize(static_cast<std::size_t>(tokens));
  sequence_.cached =
      cache.truncate(sequence_.pages, cursor_, std::min(sequence_.cached, tokens - 1));
}

void ScheduledSequence::adopt(PrefixCache& cache) {
  if (wants_every_row()) return;
  // The last token is computed in any case: its logits decide what comes next.
  sequence_.cached = cache.adopt(open_.salt, first(length() - 1), sequence_.pages, cursor_);
}

void ScheduledSequence::publish(PrefixCache& cache, bool last_page) noexcept {
  const auto ids = first(cached());
  try {
    if (last_page) {
      cache.publish_all(open_.salt, ids, sequence_.pages, cursor_);
    } else if (cursor_.tokens + kPageSlots <= cached()) {
      cache.publish(open_.salt, ids, sequence_.pages, cursor_);
    }
  } catch (const std::bad_alloc&) {
  }
}

bool ScheduledSequence::admit() {
  is_running_ = true;
  shared_beginning_ = {};
  passed_over_ = 0;
  return !std::exchange(was_admitted_, true);
}

void ScheduledSequence::preempt(PrefixCache& cache) {
  publish(cache, true);
  release(cache);
  sequence_.cached = 0;
  is_running_ = false;
  was_preempted_ = true;
}

SequenceState ScheduledSequence::state() const {
  SequenceState state;
  state.rank = open_.rank;
  state.length = length();
  state.cached = cached();
  state.pages = static_cast<std::int32_t>(sequence_.pages.pages().size());
  state.running = is_running_;
  state.every_row = wants_every_row();
  state.passed_over = passed_over_;
  state.max_skips = open_.request.max_skips;
  return state;
}

std::int32_t ScheduledSequence::own_pages(const PagePool& pool) const {
  return static_cast<std::int32_t>(std::ranges::count_if(
      sequence_.pages.pages(),
      [&](std::int32_t page) { return pool.references(page) == (pool.is_kept(page) ? 2 : 1); }));
}

std::int32_t ScheduledSequence::shared_pages(const PrefixCache& cache) {
  if (wants_every_row()) return 0;
  return cache.shared_pages(open_.salt, first(length() - 1), shared_beginning_);
}

}  // namespace bl
