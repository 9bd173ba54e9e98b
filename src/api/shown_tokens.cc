#include "api/shown_tokens.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace bl::openai {
namespace {

// Tokens that a character which the prompt begins may be spread over.
constexpr std::size_t kLookBack = 4;

}  // namespace

std::vector<ShownToken> ShownTokens::add(const Event& event) {
  return add(News{event.text, event.healed_logprobs, event.kept, event.logprobs,
                  event.finish.has_value()});
}

std::vector<ShownToken> ShownTokens::add(const Answer& answer) {
  return add(News{answer.text, answer.healed_logprobs, answer.kept, answer.logprobs, true});
}

std::vector<ShownToken> ShownTokens::add(const News& news) {
  if (!begun_ && !(news.healed.empty() && news.tokens.empty())) begin(news);
  for (const TokenLogprobs& one : news.healed) {
    const std::string said = names_.said(one.token.id);
    const std::size_t old = std::min(known_, said.size());
    known_ -= old;
    if (old < said.size()) show(one, std::string_view(said).substr(old));
  }
  for (const TokenLogprobs& one : news.tokens) show(one, names_.said(one.token.id));
  if (!decided_) text_ += news.text;
  return release(news.is_last);
}

// Reads the end of the prompt: the beginning of a character, and what healed tokens repeat.
void ShownTokens::begin(const News& news) {
  begun_ = true;
  const std::size_t kept = news.healed.empty()
                               ? prompt_.size()
                               : std::min(static_cast<std::size_t>(news.kept), prompt_.size());
  for (std::size_t i = kept - std::min(kept, kLookBack); i < prompt_.size(); ++i) {
    const std::string said = names_.said(prompt_[i]);
    count(said);
    if (i >= kept) known_ += said.size();
  }
  characters_ = 0;
  said_.clear();
}

void ShownTokens::show(const TokenLogprobs& token, std::string_view said) {
  waiting_.push_back({token, characters_});
  characters_ += count(said);
}

// Returns how many characters are complete with these bytes.
std::size_t ShownTokens::count(std::string_view bytes) {
  open_ += bytes;
  std::string text;
  open_.erase(0, decode_lossy(open_, false, text));
  if (!decided_) said_ += text;
  return count_code_points(text);
}

std::vector<ShownToken> ShownTokens::release(bool is_last) {
  if (!decided_) {
    // The text up to its first character that is no space tells.
    const std::size_t end = text_.find_first_not_of(' ');
    if (end == text_.npos && !is_last) return {};
    const std::string_view text =
        std::string_view(text_).substr(0, end == text_.npos ? end : end + 1);
    const std::string_view said = said_;
    lost_space_ =
        said.starts_with(' ') && !said.starts_with(text) && said.substr(1).starts_with(text);
    decided_ = true;
  }
  std::vector<ShownToken> shown = std::exchange(waiting_, {});
  for (ShownToken& one : shown) {
    if (lost_space_) one.offset -= std::min<std::size_t>(one.offset, 1);
  }
  return shown;
}

}  // namespace bl::openai
