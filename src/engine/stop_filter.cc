#include "engine/stop_filter.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace bl {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) {
      fail(ErrorCode::kInvalidArgument, "a stop string is empty, should have a character");
    }
  }
}

std::string StopFilter::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  std::size_t first = held_.npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != held_.npos) {
    stopped_ = true;
    return std::exchange(held_, {}).substr(0, first);
  }
  const std::size_t certain = held_.size() - held_length();
  std::string out = held_.substr(0, certain);
  held_.erase(0, certain);
  return out;
}

std::string StopFilter::finish() { return std::exchange(held_, {}); }

// Length of the longest end of held_ that begins a stop string.
std::size_t StopFilter::held_length() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    std::size_t length = std::min(stop.size() - 1, held_.size());
    while (length > longest && held_.compare(held_.size() - length, length, stop, 0, length) != 0) {
      --length;
    }
    longest = std::max(longest, length);
  }
  return longest;
}

}  // namespace bl
