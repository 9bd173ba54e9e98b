#include "engine/scheduler.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "ops/kv_layout.h"

namespace bl {
namespace {

// Returns whether a comes before b; at equal ranks the one that is listed first does.
bool comes_before(const SchedulerState& state, std::int32_t a, std::int32_t b) {
  const double x = state.sequences[static_cast<std::size_t>(a)].rank;
  const double y = state.sequences[static_cast<std::size_t>(b)].rank;
  return x != y ? x < y : a < b;
}

// The indices of the sequences for which `wanted` holds, best rank first.
template <class Wanted>
std::vector<std::int32_t> ranked(const SchedulerState& state, Wanted&& wanted) {
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < state.sequences.size(); ++i) {
    if (!wanted(state.sequences[i])) continue;
    if (order.empty()) order.reserve(state.sequences.size());
    order.push_back(static_cast<std::int32_t>(i));
  }
  std::sort(order.begin(), order.end(),
            [&](std::int32_t a, std::int32_t b) { return comes_before(state, a, b); });
  return order;
}

// The running sequences that may have to give up their pages, in the order in which they do:
// blocked ones first, then from the worst rank on.
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

  // Takes at least `count` of them, and enough to free `missing` pages, for the sequence `by`; only
  // a blocked one may be of better rank than `by`. Takes none where they are not enough.
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

// Makes the plan of one step, within its budgets of tokens, rows and pages.
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
    if (plan_.work.empty()) plan_.work.reserve(state_.sequences.size());
    plan_.work.push_back({index, count});
  }

  // Adds guesses behind the tokens planned so far, from what the sequences in `reading` can spare.
  void add_drafts(const std::vector<std::int32_t>& reading) {
    std::int64_t tokens = 0;
    std::int64_t rows = 0;
    std::int64_t pages = static_cast<std::int64_t>(plan_.work.size());  // for planned ones to grow
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
  // Gives each sequence in `group` as many guesses, at most `count`; leaves `growing` pages alone.
  // Returns that number.
  std::int64_t give_drafts(std::span<StepWork> group, std::int64_t count, std::int64_t growing) {
    std::int64_t more = 0;
    std::int64_t room = count;  // guesses that need no new page
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

  // How many of the sequence's next `count` tokens there are pages for. Without a page even for
  // one, other sequences give up theirs.
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

// Makes the plan of admissions, within the budgets of sequences, tokens and pages.
class AdmissionPlanner {
 public:
  AdmissionPlanner(const SchedulerState& state, const SchedulerLimits& limits)
      : state_(state),
        limits_(limits),
        victims_(state),
        budget_(limits.step_tokens),
        available_(state.available_pages) {
    for (const SequenceState& s : state.sequences) {
      if (!s.running) continue;
      ++running_;
      if (!s.blocked) budget_ -= s.missing();
      available_ -= growth(s);
    }
  }

  // The first in line may take the places of running sequences of worse rank.
  void make_place(std::int32_t index) {
    const SequenceState& s = at(index);
    const bool no_slot = running_ >= limits_.running;
    const std::int64_t missing = need(s) + spare(s) - available_;
    if (!no_slot && missing <= 0) return;
    auto taken = victims_.take(index, missing, no_slot ? 1 : 0);
    // Running alone, it needs no spare pages beside it.
    if (taken.empty()) {
      taken = victims_.take(index, need(s) - available_, static_cast<std::size_t>(running_));
    }
    for (const std::int32_t victim : taken) {
      const SequenceState& v = at(victim);
      available_ += v.own_pages + growth(v);
      if (!v.blocked) budget_ += v.missing();
      --running_;
      plan_.preempted.push_back(victim);
    }
  }

  bool is_full() const { return running_ >= limits_.running || budget_ <= 0; }

  // False where the sequence does not fit, and none behind it may be admitted before it.
  bool admit_or_skip(std::int32_t index) {
    const SequenceState& s = at(index);
    if (need(s) + spare(s) > available_) {
      skipped_.push_back(index);
      return s.passed_over < s.max_skips;
    }
    ++running_;
    budget_ -= s.length - std::int64_t{s.shared_pages} * kPageSlots;
    available_ -= need(s);
    plan_.admitted.push_back(index);
    plan_.passed_over.insert(plan_.passed_over.end(), skipped_.begin(), skipped_.end());
    skipped_.clear();
    return true;
  }

  AdmissionPlan take() { return std::move(plan_); }

 private:
  const SequenceState& at(std::int32_t i) const {
    return state_.sequences[static_cast<std::size_t>(i)];
  }
  // Pages that a running sequence has been promised and does not hold yet.
  static std::int64_t growth(const SequenceState& s) {
    return std::max<std::int64_t>(0, pages_for(s.length) - s.pages);
  }
  // Pages that a waiting sequence takes.
  static std::int64_t need(const SequenceState& s) { return pages_for(s.length) - s.shared_pages; }
  // Pages that have to stay free beside it.
  std::int64_t spare(const SequenceState& s) const {
    return running_ == 0 || s.is_second ? 0 : std::int64_t{limits_.spare_pages};
  }

  const SchedulerState& state_;
  const SchedulerLimits& limits_;
  Victims victims_;
  AdmissionPlan plan_;
  std::vector<std::int32_t> skipped_;  // since the last one that was admitted
  std::int64_t running_ = 0;
  std::int64_t budget_;     // tokens of prompts that may still be admitted
  std::int64_t available_;  // pages
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
  AdmissionPlanner planner(state, limits);
  const auto waiting = ranked(
      state, [](const SequenceState& s) { return !s.running && !s.blocked && s.missing() > 0; });
  for (const std::int32_t index : waiting) {
    if (index == waiting.front()) planner.make_place(index);
    if (planner.is_full() || !planner.admit_or_skip(index)) break;
  }
  return planner.take();
}

}  // namespace bl
