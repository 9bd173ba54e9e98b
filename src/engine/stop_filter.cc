#include "engine/stop_filter.h"

#include <utility>

namespace bl {

std::string StopFilter::push(std::string_view text) {
  if (stopped_) return {};
  if (stops_ == nullptr) return std::string(text);
  const TextMatcher::State before = state_;
  const std::size_t held = stops_->open_bytes(before);
  std::size_t certain = 0;  // bytes of what was held and `text` together
  for (std::size_t i = 0; i < text.size() && !stopped_; ++i) {
    state_ = stops_->next(state_, text[i]);
    if (const std::size_t matched = stops_->matched(state_); matched > 0) {
      stopped_ = true;
      stopped_at_ = i + 1;
      certain = held + i + 1 - matched;
    }
  }
  if (stopped_) {
    withheld_ = stops_->open_text(before).append(text).substr(certain);
  } else {
    certain = held + text.size() - stops_->open_bytes(state_);
  }
  if (certain == 0) return {};
  if (held == 0) return std::string(text.substr(0, certain));
  std::string out = stops_->open_text(before);
  if (certain > held) out += text.substr(0, certain - held);
  out.resize(certain);
  return out;
}

std::string StopFilter::stop_string() const {
  if (!stopped_) return {};
  const std::string open = stops_->open_text(state_);
  return open.substr(open.size() - stops_->matched(state_));
}

std::string StopFilter::finish() {
  if (stops_ == nullptr || stopped_) return {};
  return stops_->open_text(std::exchange(state_, 0));
}

}  // namespace bl
