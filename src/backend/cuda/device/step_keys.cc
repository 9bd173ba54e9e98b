#include "backend/cuda/device/step_keys.h"

#include <algorithm>

namespace bl::cuda {

StepKeys::Turns::iterator StepKeys::oldest(Turns& turns) {
  return std::min_element(turns.begin(), turns.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
}

void StepKeys::remember(std::uint64_t key) {
  last_plain_[key] = now_;
  if (last_plain_.size() > static_cast<std::size_t>(turns_)) last_plain_.erase(oldest(last_plain_));
}

StepKeys::Turn StepKeys::next(std::uint64_t key) {
  ++now_;
  if (const auto at = last_use_.find(key); at != last_use_.end()) {
    at->second = now_;
    return {Way::kRepeat};
  }
  const auto known = last_plain_.find(key);
  const bool is_known = known != last_plain_.end();
  const bool is_busy = is_known && now_ - known->second < turns_;
  remember(key);
  if (!is_known) return {};
  if (last_use_.size() < graphs_) return {Way::kRecord};
  const auto victim = oldest(last_use_);
  if (!is_busy || now_ - victim->second < turns_) return {};
  const Turn turn{Way::kRecord, victim->first};
  last_use_.erase(victim);
  return turn;
}

void StepKeys::recorded(std::uint64_t key) {
  last_plain_.erase(key);
  last_use_[key] = now_;
}

void StepKeys::clear() {
  last_use_.clear();
  last_plain_.clear();
}

}  // namespace bl::cuda
