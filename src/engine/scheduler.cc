#include "engine/scheduler.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "ops/kv_layout.h"

namespace bl {
namespace {

// Equal ranks: the one that is listed first.
bool comes_before(const SchedulerState& state, std::int32_t a, std::int32_t b) {
  const double x = state.sequences[static_cast<std::size_t>(a)].rank;
  const double y = state.sequences[static_cast<std::size_t>(b)].rank;
  return x != y ? x < y : a < b;
}

// Indices of the sequences that `wanted` picks, best rank first.
template <class Wanted>
std::vector<std::int32_t> ranked(const SchedulerState& state, Wanted&& wanted) {
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < state.sequences.size(); ++i) {
    if (wanted(state.sequences[i])) order.push_back(static_cast<std::int32_t>(i));
  }
  std::sort(order.begin(), order.end(),
            [&](std::int32_t a, std::int32_t b) { return comes_before(state, a, b); });
  return order;
}

// Running sequences that may have to give up their pages: blocked ones first, then from the worst
// rank on.
class Victims {
 public:
  explicit Victims(const SchedulerState& state)
      : state_(state),
        order_(ranked(state, [](const SequenceState& s) { return s.running && s.pages > 0; })) {
    std::stable_partition(order_.begin(), order_.end(),
                          [&](std::int32_t i) { return !at(i).blocked; });
  }

  void protect(std::int32_t sequence) {
    order_.erase(std::remove(order_.begin(), order_.end(), sequence), order_.end());
  }

  // At least `count`, and so many that their pages make up for `missing`; none is better than `by`
  // unless it is blocked. Nothing where all of them together do not.
  std::vector<std::int32_t> take(std::int32_t by, std::int64_t missing, std::size_t count) {
    std::size_t taken = 0;
    while ((missing > 0 || taken < count) && taken < order_.size()) {
      const std::int32_t victim = order_[order_.size() - 1 - taken];
      if (victim == by || (!at(victim).blocked && comes_before(state_, victim, by))) break;
      missing -= at(victim).own_pages;
      ++taken;
    }
    if (missing > 0 || taken < count) return {};
    const auto first = order_.end() - static_cast<std::ptrdiff_t>(taken);
    std::vector<std::int32_t> victims(first, order_.end());
    order_.erase(first, order_.end());
    return victims;
  }

 private:
  const SequenceState& at(std::int32_t i) const {
    return state_.sequences[static_cast<std::size_t>(i)];
  }
  const SchedulerState& state_;
  std::vector<std::int32_t> order_;  // the last goes first
};

// The making of one step's plan.
class StepPlanner {
 public:
  StepPlanner(const SchedulerState& state, const SchedulerLimits& limits)
      : state_(state),
        victims_(state),
        tokens_(limits.step_tokens),
        rows_(limits.logit_rows),
        available_(state.available_pages) {}

  void plan(std::int32_t index) {
    const SequenceState& sequence = state_.sequences[static_cast<std::size_t>(index)];
    std::int64_t count = std::min(sequence.missing(), tokens_);
    const bool last = count == sequence.missing();
    if (sequence.every_row) {
      count = std::min(count, rows_);
    } else if (last && rows_ == 0) {
      --count;
    }
    if (count <= 0 || is_gone(index)) return;
    count = std::min(count, room(index, count));
    if (count <= 0) return;
    const bool complete = count == sequence.missing();
    tokens_ -= count;
    rows_ -= sequence.every_row ? count : (complete ? 1 : 0);
    available_ -= pages_for(sequence.cached + count) - sequence.pages;
    victims_.protect(index);
    plan_.work.push_back({index, count});
  }

  // Guesses behind the tokens that are planned, with what nobody starves for.
  void add_drafts(const std::vector<std::int32_t>& reading) {
    std::int64_t tokens = 0;
    std::int64_t rows = 0;
    std::int64_t pages = static_cast<std::int64_t>(plan_.work.size());  // to grow into
    for (const std::int32_t index : reading) {
      const SequenceState& s = state_.sequences[static_cast<std::size_t>(index)];
      tokens += s.missing();
      rows += s.every_row ? s.missing() : 1;
      pages += std::max<std::int64_t>(0, pages_for(s.length) - s.pages);
    }
    std::int64_t left_tokens = tokens_ - std::min(tokens, (tokens_ + 1) / 2);
    std::int64_t left_rows = rows_ - std::min(rows, (rows_ + 1) / 2);
    const std::span<StepWork> all = plan_.work;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const SequenceState& s = state_.sequences[static_cast<std::size_t>(all[i].sequence)];
      if (s.drafts == 0) continue;
      std::size_t members = 1;
      if (s.pairs_drafts) {
        if (i + 1 == all.size() || all[i + 1].sequence != all[i].sequence + 1) continue;
        members = 2;
      }
      const auto width = static_cast<std::int64_t>(members);
      const std::int64_t most = std::min({s.drafts, left_tokens / width, left_rows / width});
      const std::int64_t count = give_drafts(all.subspan(i, members), most, pages) * width;
      left_tokens -= count;
      left_rows -= count;
      tokens_ -= count;
      rows_ -= count;
    }
  }

  bool is_full() const { return tokens_ == 0; }
  StepPlan take() { return std::move(plan_); }

 private:
  // The same number for all of `group`, of which pages for growing are left alone.
  std::int64_t give_drafts(std::span<StepWork> group, std::int64_t count, std::int64_t growing) {
    std::int64_t more = 0;
    std::int64_t room = count;  // without a new page
    for (const StepWork& work : group) {
      const SequenceState& s = state_.sequences[static_cast<std::size_t>(work.sequence)];
      const std::int64_t end = s.cached + work.tokens;
      const std::int64_t held = std::max<std::int64_t>(s.pages, pages_for(end));
      more += std::max<std::int64_t>(0, pages_for(end + count) - held);
      room = std::min(room, held * kPageSlots - end);
    }
    if (more > std::max<std::int64_t>(0, available_ - growing)) {
      count = room;
    } else {
      available_ -= more;
    }
    for (StepWork& work : group) work.drafts = count;
    return count;
  }

  bool is_gone(std::int32_t index) const {
    return std::find(plan_.preempted.begin(), plan_.preempted.end(), index) !=
           plan_.preempted.end();
  }

  // Of the next `count` tokens, as many as there are pages for; others give up theirs if they must.
  std::int64_t room(std::int32_t index, std::int64_t count) {
    const SequenceState& sequence = state_.sequences[static_cast<std::size_t>(index)];
    const std::int64_t wanted = pages_for(sequence.cached + count) - sequence.pages;
    const std::int64_t least = pages_for(sequence.cached + 1) - sequence.pages;
    if (least > available_) {
      for (const std::int64_t goal : {wanted, least}) {
        const auto taken = victims_.take(index, goal - available_, 1);
        if (taken.empty()) continue;
        for (const std::int32_t victim : taken) {
          available_ += state_.sequences[static_cast<std::size_t>(victim)].own_pages;
        }
        plan_.preempted.insert(plan_.preempted.end(), taken.begin(), taken.end());
        break;
      }
    }
    const std::int64_t pages = sequence.pages + std::min(wanted, available_);
    return std::min(count, pages * kPageSlots - sequence.cached);
  }

  const SchedulerState& state_;
  Victims victims_;
  StepPlan plan_;
  std::int64_t tokens_;
  std::int64_t rows_;
  std::int64_t available_;
};

}  // namespace

StepPlan plan_step(const SchedulerState& state, const SchedulerLimits& limits) {
  StepPlanner planner(state, limits);
  const auto decoding = ranked(state, [](const SequenceState& s) {
    return s.running && !s.blocked && s.missing() == 1 && !s.every_row;
  });
  const auto reading = ranked(state, [](const SequenceState& s) {
    return s.running && !s.blocked && s.missing() > 0 && (s.missing() > 1 || s.every_row);
  });
  for (const std::int32_t index : decoding) planner.plan(index);
  planner.add_drafts(reading);
  for (const std::int32_t index : reading) {
    if (planner.is_full()) break;
    planner.plan(index);
  }
  return planner.take();
}

AdmissionPlan plan_admission(const SchedulerState& state, const SchedulerLimits& limits) {
  AdmissionPlan plan;
  std::int64_t running = 0;
  std::int64_t budget = limits.step_tokens;
  std::int64_t available = state.available_pages;
  for (const SequenceState& s : state.sequences) {
    if (!s.running) continue;
    ++running;
    if (!s.blocked) budget -= s.missing();
    available -= std::max<std::int64_t>(0, pages_for(s.length) - s.pages);
  }
  Victims victims(state);
  std::vector<std::int32_t> skipped;
  const auto waiting = ranked(
      state, [](const SequenceState& s) { return !s.running && !s.blocked && s.missing() > 0; });
  for (const std::int32_t index : waiting) {
    const SequenceState& s = state.sequences[static_cast<std::size_t>(index)];
    const std::int64_t need = pages_for(s.length) - s.shared_pages;
    const auto spare = [&] {
      return running == 0 || s.is_second ? 0 : std::int64_t{limits.spare_pages};
    };
    // The first in line may take the place of running ones of worse rank.
    const bool no_slot = running >= limits.running;
    if (index == waiting.front() && (no_slot || need + spare() > available)) {
      auto taken = victims.take(index, need + spare() - available, no_slot ? 1 : 0);
      // Alone, it needs no spare pages beside it.
      if (taken.empty()) {
        taken = victims.take(index, need - available, static_cast<std::size_t>(running));
      }
      for (const std::int32_t victim : taken) {
        const SequenceState& v = state.sequences[static_cast<std::size_t>(victim)];
        available += v.own_pages + std::max<std::int64_t>(0, pages_for(v.length) - v.pages);
        if (!v.blocked) budget += v.missing();
        --running;
        plan.preempted.push_back(victim);
      }
    }
    if (running >= limits.running || budget <= 0) break;
    if (need + spare() > available) {
      if (s.passed_over >= s.max_skips) break;
      skipped.push_back(index);
      continue;
    }
    ++running;
    budget -= s.length - std::int64_t{s.shared_pages} * kPageSlots;
    available -= need;
    plan.admitted.push_back(index);
    plan.passed_over.insert(plan.passed_over.end(), skipped.begin(), skipped.end());
    skipped.clear();
  }
  return plan;
}

}  // namespace bl
