#pragma once
// What the grammar library calls while it works. Its sources are compiled with this header in front
// of them, and tools/fetch_xgrammar puts the calls in: where it loops or allocates without a bound
// of its own, so that no grammar, however it was made, costs more than its caller allows; and where
// it makes ranges of characters, so that all it lets pass is UTF-8.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace bl {

// So many small steps, of about ten nanoseconds each, are about to be done. Throws when the budget
// of the present thread (work_budget.h) is spent; so does keep_work().
void spend_work(std::size_t steps);
// So many bytes are about to be kept.
void keep_work(std::size_t bytes);

// Cuts a range of characters of one length, written as their bytes one after another, to what UTF-8
// has (Unicode 15, table 3-7): no surrogates, no forms longer than needed, nothing above U+10FFFF.
// Ranges of bytes that continue a character are as they were. False where nothing is left of it, or
// add() has been called with its parts.
template <class Add>
bool keep_to_utf8(std::uint32_t& low, std::uint32_t& high, const Add& add) {
  if (high >= 0xF0000000) {
    low = std::max<std::uint32_t>(low, 0xF0908080);
    high = std::min<std::uint32_t>(high, 0xF48FBFBF);
  } else if (low >= 0xE00000 && high <= 0xEFBFBF) {
    low = std::max<std::uint32_t>(low, 0xE0A080);
    if (low <= 0xEDBFBF && high >= 0xEDA080) {
      if (low < 0xEDA080) add(low, std::uint32_t{0xED9FBF});
      if (high > 0xEDBFBF) add(std::uint32_t{0xEE8080}, high);
      return false;
    }
  } else if (low >= 0xC000 && high <= 0xDFBF) {
    low = std::max<std::uint32_t>(low, 0xC280);
  }
  return low <= high;
}

}  // namespace bl
