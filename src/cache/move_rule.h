#pragma once
#include <cstddef>
#include <cstdint>

namespace bl {

// Measured rates; 0 means not known yet.
struct TierRates {
  double copy_bytes = 0;      // bytes per second between a page and host memory
  double prefill_tokens = 0;  // tokens per second
};

// Whether moving a page with `tokens` tokens to the host and back is faster than computing it
// again. Until both rates are known the answer is yes: the user gave the memory for that.
inline bool is_worth_moving(std::int64_t tokens, std::size_t page_bytes, const TierRates& rates) {
  if (rates.copy_bytes <= 0 || rates.prefill_tokens <= 0) return true;
  return 2 * static_cast<double>(page_bytes) / rates.copy_bytes <
         static_cast<double>(tokens) / rates.prefill_tokens;
}

}  // namespace bl
