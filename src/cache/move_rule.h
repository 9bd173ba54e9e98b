#pragma once
#include <cstddef>
#include <cstdint>

namespace bl {

// How fast things go, as measured so far; 0: not known yet.
struct TierRates {
  double copy_bytes = 0;      // a second, between a page and host memory
  double prefill_tokens = 0;  // a second
};

// Whether a page that holds `tokens` tokens is better moved to the host and back than computed
// again. Without measurements it is moved: that is what the memory was given for.
inline bool is_worth_moving(std::int64_t tokens, std::size_t page_bytes, const TierRates& rates) {
  if (rates.copy_bytes <= 0 || rates.prefill_tokens <= 0) return true;
  return 2 * static_cast<double>(page_bytes) / rates.copy_bytes <
         static_cast<double>(tokens) / rates.prefill_tokens;
}

}  // namespace bl
