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

// How many pages may come back from the host in one step: as many as are moved in a blink, so that
// those who decode beside them notice nothing; at least one.
std::int64_t pages_of_a_step(std::size_t page_bytes, const TierRates& rates);

// The host's part of an engine's cache, and what it costs to compute and to move, measured while
// the engine runs.
class CacheTiers {
 public:
  // `host_bytes` 0: no host tier. `rates`: to be believed instead of what is measured. Throws
  // kInvalidArgument when they are too few for this model, and kUnsupported when its pages cannot
  // be moved.
  CacheTiers(StepModel& model, std::size_t host_bytes, std::optional<TierRates> rates = {});

  HostTier* host() { return host_ ? &*host_ : nullptr; }
  const HostTier* host() const { return host_ ? &*host_ : nullptr; }

  // How long a step of these items took.
  void count_step(std::span<const StepItem> items, double seconds);
  TierRates rates() const;
  std::int64_t restored_pages() const;  // of the next step, at most
  void tell(EngineStats& stats) const;

 private:
  std::optional<HostTier> host_;
  std::optional<TierRates> given_;
  double prefill_rate_ = 0;  // tokens a second
};

}  // namespace bl
