#include "engine/cache_tiers.h"

#include <algorithm>

#include "base/error.h"

namespace bl {
namespace {

constexpr double kBlink = 0.02;  // seconds
// Items of fewer tokens say little about the speed of prefill.
constexpr std::int64_t kLeastMeasured = 32;

}  // namespace

std::int64_t pages_of_a_step(std::size_t page_bytes, const TierRates& rates) {
  if (rates.copy_bytes <= 0) return 1;
  const double pages = kBlink * rates.copy_bytes / static_cast<double>(page_bytes);
  return static_cast<std::int64_t>(std::clamp(pages, 1.0, 1e6));
}

CacheTiers::CacheTiers(StepModel& model, std::size_t host_bytes, std::optional<TierRates> rates)
    : given_(rates) {
  if (host_bytes == 0) return;
  PageMemory* memory = model.page_memory();
  if (memory == nullptr || memory->page_bytes() == 0) {
    fail(ErrorCode::kUnsupported, "the pages of this model's cache cannot be moved to the host");
  }
  host_.emplace(*memory, host_bytes);
}

void CacheTiers::count_step(std::span<const StepItem> items, double seconds) {
  std::int64_t tokens = 0;
  std::int64_t prefill = 0;  // neither decoded, nor guessed and verified
  for (const StepItem& item : items) {
    tokens += item.count;
    prefill += item.count >= kLeastMeasured ? item.count : 0;
  }
  if (prefill == 0 || 2 * prefill < tokens || seconds <= 0) return;
  const double rate = static_cast<double>(tokens) / seconds;
  prefill_rate_ = prefill_rate_ == 0 ? rate : 0.75 * prefill_rate_ + 0.25 * rate;
}

TierRates CacheTiers::rates() const {
  return given_.value_or(TierRates{host_ ? host_->copy_rate() : 0, prefill_rate_});
}

void CacheTiers::tell(EngineStats& stats) const {
  if (!host_) return;
  stats.host_pages = host_->slots();
  stats.free_host_pages = host_->free_slots();
  stats.host_copy_rate = host_->copy_rate();
}

std::int64_t CacheTiers::restored_pages() const {
  return host_ ? pages_of_a_step(host_->page_bytes(), rates()) : 0;
}

}  // namespace bl
