#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cache/host_tier.h"
#include "cache/move_rule.h"
#include "engine/engine_stats.h"
#include "engine/step_model.h"

namespace bl {

// How many pages may come back from host memory in one step: as many as are copied in 20 ms, so
// that sequences that decode meanwhile are not held up noticeably; at least one.
std::int64_t pages_of_a_step(std::size_t page_bytes, const TierRates& rates);

// The host tier of an engine's cache, and what computing and copying pages cost, measured while the
// engine runs.
class CacheTiers {
 public:
  // `host_bytes`: memory for the host tier; 0: none. `rates`: used instead of measured ones. Throws
  // kInvalidArgument where the memory is too small for this model, and kUnsupported where its pages
  // cannot be moved.
  CacheTiers(StepModel& model, std::size_t host_bytes, std::optional<TierRates> rates = {});

  HostTier* host() { return host_ ? &*host_ : nullptr; }
  const HostTier* host() const { return host_ ? &*host_ : nullptr; }

  // A step of these items took `seconds`.
  void count_step(std::span<const StepItem> items, double seconds);
  TierRates rates() const;
  // Pages that the next step may bring back from the host, at most.
  std::int64_t restored_pages() const;
  void tell(EngineStats& stats) const;

 private:
  std::optional<HostTier> host_;
  std::optional<TierRates> given_;
  double prefill_rate_ = 0;  // tokens per second; 0: not measured yet
};

}  // namespace bl
