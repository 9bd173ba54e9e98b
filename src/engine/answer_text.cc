#include "engine/answer_text.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "text/decode_stages.h"

namespace bl {
namespace {

constexpr int kMostBytes = 3;  // bytes of a UTF-8 character before its last one
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

AnswerRules::AnswerRules(const SamplingParams& params) {
  if (!params.stop_strings.empty()) stops = std::make_shared<TextMatcher>(params.stop_strings);
  if (!params.banned_strings.empty()) banned = BanFilter::matcher(params.banned_strings);
}

AnswerText::AnswerText(const Tokenizer& tokenizer, SpecialText special, const AnswerRules& rules,
                       std::span<const std::int32_t> before)
    : tokenizer_(tokenizer), special_(special), filter_(rules.stops) {
  if (rules.banned) bans_.emplace(rules.banned);
  stream_ = stream_of(end_of(before));
  left_out_ = bytes_held(before);
}

// A decoder treats the beginning of a text differently. Otherwise it looks back no further than the
// bytes of one character, or to the beginning of a run of byte tokens, since only the end of such a
// run shows whether it is text.
std::span<const std::int32_t> AnswerText::end_of(std::span<const std::int32_t> before) const {
  constexpr std::size_t kLookBack = 16;
  std::size_t begin = before.size() - std::min(before.size(), kLookBack);
  const auto within_row = [&](std::int32_t id) {
    return byte_token_value(tokenizer_.id_to_token(id)) >= 0 || special_.skips(tokenizer_, id);
  };
  while (begin > 0 && within_row(before[begin])) --begin;
  return before.subspan(begin);
}

std::unique_ptr<TextStream> AnswerText::stream_of(std::span<const std::int32_t> ids) const {
  auto stream = std::make_unique<TextStream>(tokenizer_, special_);
  for (const std::int32_t id : ids) stream->push(id);
  return stream;
}

// How many bytes of text the decoder still holds back after `before` and will give with the next
// token, although they belong to `before`. A character that `before` only begins belongs to the
// token that completes it. Bytes that can become no character count as their replacements.
std::size_t AnswerText::bytes_held(std::span<const std::int32_t> before) const {
  before = end_of(before);
  std::size_t all = 0;
  for (int cut = 0; cut <= kMostBytes; ++cut) {
    const std::string held = stream_of(before)->finish();
    if (held.find(kReplacement) == held.npos) return held.size();
    if (cut == 0) all = held.size();
    before = before.first(before.size() - 1);
  }
  return all;
}

std::string AnswerText::without_left_out(std::string text) {
  const std::size_t known = std::min(left_out_, text.size());
  left_out_ -= known;
  text.erase(0, known);
  return text;
}

std::string AnswerText::push(std::int32_t id) {
  if (bans_) marks_.push_back({filter_.mark(), left_out_, {}});
  std::string text = stream_->push(id);
  const bool is_left_out = special_.skips(tokenizer_, id);
  const bool silent = text.empty() && !is_left_out;
  if (left_out_ > 0) text = without_left_out(std::move(text));
  std::string certain = filter_.push(text);
  if (!bans_) return certain;
  marks_.back().text = text;
  BanFilter::Silent said{.is_part = silent, .is_left_out = text.empty() && is_left_out};
  if (silent) {
    const int byte = byte_token_value(tokenizer_.id_to_token(id));
    if (byte >= 0) said.byte = static_cast<char>(byte);
  }
  bans_->push(text, said);
  banned_ = bans_before(filter_);
  if (!banned_) {
    bans_->release();
    while (marks_.size() > bans_->open_tokens()) marks_.pop_front();
  }
  return certain;
}

bool AnswerText::bans_before(const StopFilter& filter) const {
  const std::optional<std::size_t> at = bans_->completed_at();
  return at && (!filter.stopped() || *at < filter.stopped_at());
}

void AnswerText::close() {
  if (!bans_ || last_ || filter_.stopped()) return;
  last_ = without_left_out(stream_->finish());
  StopFilter filter = filter_;
  filter.push(*last_);
  bans_->finish(*last_);
  banned_ = bans_before(filter);
}

std::string AnswerText::take_back(std::size_t tokens, std::span<const std::int32_t> before) {
  std::string said;
  if (tokens == 0) return said;
  const std::size_t stay = marks_.size() - tokens;
  for (std::size_t i = stay; i < marks_.size(); ++i) said += marks_[i].text;
  if (last_) said += *last_;
  last_.reset();
  filter_.restore(marks_[stay].filter);
  left_out_ = marks_[stay].left_out;
  bans_->take_back(tokens);
  marks_.resize(stay);
  banned_ = false;
  // A run of byte tokens became text as a whole, and the tokens at its beginning stay.
  if (const std::string row = bans_->open_row(); said.starts_with(row)) {
    std::size_t known = row.size();
    while (known > 0 && known < said.size() && is_continuation(said[known])) --known;
    said.erase(0, known);
  }
  stream_ = stream_of(end_of(before));
  return said;
}

// Decodes the last tokens again, as many as are needed.
std::size_t AnswerText::withheld_tokens(std::span<const std::int32_t> ids) const {
  const std::size_t bytes = filter_.withheld().size();
  if (bytes == 0) return 0;
  std::vector<std::size_t> said;  // bytes of text per token
  std::size_t all = 0;
  // Goes beyond `bytes`, so that the tokens that began their first character are included.
  for (std::size_t most = 16; all <= bytes && said.size() < ids.size(); most *= 2) {
    const std::size_t from = ids.size() - std::min(most, ids.size());
    const auto stream = stream_of(end_of(ids.first(from)));
    said.clear();
    all = 0;
    for (const std::int32_t id : ids.subspan(from)) {
      said.push_back(stream->push(id).size());
      all += said.back();
    }
    if (finished_) said.back() += stream->finish().size();
  }
  std::size_t tokens = 0;
  std::size_t found = 0;
  while (tokens < said.size() && found < bytes) found += said[said.size() - ++tokens];
  // Earlier tokens may have begun the first character.
  while (found == bytes && tokens < said.size()) {
    const auto before = ids.first(ids.size() - tokens);
    if (stream_of(end_of(before))->finish().empty()) break;
    found += said[said.size() - ++tokens];
  }
  return tokens;
}

std::string AnswerText::finish() {
  if (filter_.stopped()) return {};
  close();
  finished_ = true;
  if (banned_) return {};  // an answer that was cut short cannot go back
  if (!last_) last_ = without_left_out(stream_->finish());
  std::string rest = filter_.push(*last_);
  if (!filter_.stopped()) rest += filter_.finish();
  return rest;
}

}  // namespace bl
