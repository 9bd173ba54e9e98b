#include "engine/held_answer.h"

#include <utility>

#include "base/check.h"

namespace bl {

void HeldAnswer::add(AnswerPiece piece, const Place& after) {
  held_.push_back({std::move(piece), after});
}

HeldAnswer::Place HeldAnswer::take_back(std::size_t tokens, std::int64_t length) {
  BL_CHECK(tokens > 0 && tokens <= held_.size());
  const std::size_t stay = held_.size() - tokens;
  // Tokens barred further behind were so in a text that is gone now.
  while (!bars_.empty() && bars_.back().position > length) bars_.pop_back();
  if (bars_.empty() || bars_.back().position < length) bars_.push_back({length, {}});
  bars_.back().ids.push_back(held_[stay].piece.id);
  while (held_.size() > stay) held_.pop_back();
  ++rewinds_;
  ++all_rewinds_;
  return held_.empty() ? begin_ : held_.back().after;
}

std::span<const std::int32_t> HeldAnswer::barred(std::int64_t length) const {
  for (const Bar& bar : bars_) {
    if (bar.position == length) return bar.ids;
  }
  return {};
}

void HeldAnswer::forget_bars(std::int64_t before) {
  while (!bars_.empty() && bars_.front().position < before) bars_.pop_front();
}

}  // namespace bl
