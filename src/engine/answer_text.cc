#include "engine/answer_text.h"

#include <algorithm>

namespace bl {

AnswerRules::AnswerRules(const SamplingParams& params) {
  if (!params.stop_strings.empty()) stops = std::make_shared<TextMatcher>(params.stop_strings);
  if (!params.banned_strings.empty()) banned = BanFilter::matcher(params.banned_strings);
}

AnswerText::AnswerText(const Tokenizer& tokenizer, bool skip_special, const AnswerRules& rules,
                       std::span<const std::int32_t> before)
    : tokenizer_(tokenizer), skip_special_(skip_special), filter_(rules.stops) {
  if (rules.banned) bans_.emplace(rules.banned);
  start(before);
}

// Decoders treat the beginning of a text differently; beyond that they look back no further than
// one character's bytes.
void AnswerText::start(std::span<const std::int32_t> before) {
  constexpr std::size_t kLookBack = 16;
  stream_ = std::make_unique<TextStream>(tokenizer_, skip_special_);
  for (const std::int32_t id : before.last(std::min(before.size(), kLookBack))) stream_->push(id);
}

std::string AnswerText::push(std::int32_t id) {
  if (bans_) marks_.push_back({filter_.mark(), left_out_});
  std::string text = stream_->push(id);
  const bool silent = text.empty() && !(skip_special_ && tokenizer_.is_special(id));
  if (left_out_ > 0) {
    const std::size_t known = std::min(left_out_, text.size());
    left_out_ -= known;
    text.erase(0, known);
  }
  std::string certain = filter_.push(text);
  if (!bans_) return certain;
  bans_->push(text, silent);
  const std::optional<std::size_t> at = bans_->completed_at();
  banned_ = at && (!filter_.stopped() || *at < filter_.stopped_at());
  if (!banned_) {
    bans_->release();
    while (marks_.size() > bans_->open_tokens()) marks_.pop_front();
  }
  return certain;
}

void AnswerText::take_back(std::size_t tokens, std::span<const std::int32_t> before) {
  if (tokens == 0) return;
  const Mark& mark = marks_[marks_.size() - tokens];
  filter_.restore(mark.filter);
  left_out_ = mark.left_out;
  bans_->take_back(tokens);
  marks_.resize(marks_.size() - tokens);
  banned_ = false;
  start(before);
}

std::string AnswerText::finish() {
  if (filter_.stopped()) return {};
  std::string rest = filter_.push(stream_->finish());
  if (!filter_.stopped()) rest += filter_.finish();
  return rest;
}

}  // namespace bl
