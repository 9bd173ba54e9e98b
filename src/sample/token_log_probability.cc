#include "sample/token_log_probability.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "sample/row_select.h"

namespace bl {
namespace {

bool likelier(const LogitEntry& a, const LogitEntry& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

}  // namespace

void TopLogProbabilities::find(std::span<const float> logits, std::size_t n) {
  logits_ = logits;
  candidates_ = nullptr;
  log_mass_ = log_sum_exp(logits);
  select_top(logits, std::min(n, logits.size()), entries_);
  std::sort(entries_.begin(), entries_.end(), likelier);
  top_.clear();
  for (const LogitEntry& entry : entries_) {
    top_.push_back({entry.id, static_cast<double>(entry.logit) - log_mass_});
  }
}

void TopLogProbabilities::find(const SampleRow& candidates, std::size_t n) {
  candidates_ = &candidates;
  log_mass_ = std::log(candidates.mass);
  entries_.clear();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    entries_.push_back({candidates.weights[i], candidates.ids[i]});
  }
  const auto count = static_cast<std::ptrdiff_t>(std::min(n, entries_.size()));
  std::partial_sort(entries_.begin(), entries_.begin() + count, entries_.end(), likelier);
  top_.clear();
  for (auto it = entries_.begin(); it != entries_.begin() + count; ++it) {
    top_.push_back({it->id, std::log(static_cast<double>(it->logit)) - log_mass_});
  }
}

double TopLogProbabilities::of(std::int32_t id) const {
  if (candidates_ == nullptr) {
    BL_CHECK(id >= 0 && static_cast<std::size_t>(id) < logits_.size());
    return static_cast<double>(logits_[static_cast<std::size_t>(id)]) - log_mass_;
  }
  const std::vector<std::int32_t>& ids = candidates_->ids;
  const auto at = std::lower_bound(ids.begin(), ids.end(), id);
  if (at == ids.end() || *at != id) return -std::numeric_limits<double>::infinity();
  const auto i = static_cast<std::size_t>(at - ids.begin());
  return std::log(static_cast<double>(candidates_->weights[i])) - log_mass_;
}

}  // namespace bl
