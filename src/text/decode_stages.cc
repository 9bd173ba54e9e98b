#include "text/decode_stages.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/space_mark.h"

namespace bl {
namespace {

constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (text.find(from) == std::string::npos) return;
  text = TextPattern(std::string(from)).replace_all(text, to);
}

// Removes the spaces that tokenization put before punctuation and English contractions.
void clean_up(std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules = {{
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" do not", " don't"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  }};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

int byte_token_value(std::string_view token) {
  if (token.size() != 6 || !starts_with(token, "<0x") || token[5] != '>') return -1;
  const int high = hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void JoinStage::put(std::string_view part, bool last) {
  if (!in_token_ && any_) next().put(" ", true);
  any_ = true;
  in_token_ = !last;
  next().put(part, last);
}

void FuseStage::finish() {
  next().put({}, true);
  DecodeStage::finish();
}

void ByteLevelStage::token(std::string_view text) {
  const std::size_t before = bytes_.size();
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    const int byte = byte_level_byte(c.value);
    if (byte < 0) {  // not the byte-level alphabet: the token stands for itself
      bytes_.resize(before);
      bytes_.append(text);
      break;
    }
    bytes_.push_back(static_cast<char>(byte));
    i += c.size;
  }
  text_.clear();
  bytes_.erase(0, decode_lossy(bytes_, false, text_));
  if (!text_.empty()) next().put(text_, false);
}

void ByteLevelStage::finish() {
  text_.clear();
  decode_lossy(bytes_, true, text_);
  bytes_.clear();
  next().put(text_, true);
  DecodeStage::finish();
}

void ByteFallbackStage::token(std::string_view text) {
  const int byte = byte_token_value(text);
  if (byte >= 0) {
    bytes_.push_back(static_cast<char>(byte));
    return;
  }
  flush();
  next().put(text, true);
}

void ByteFallbackStage::flush() {
  if (bytes_.empty()) return;
  if (is_valid_utf8(bytes_)) {
    next().put(bytes_, true);
  } else {
    for (std::size_t i = 0; i < bytes_.size(); ++i) next().put(kReplacementCharacter, true);
  }
  bytes_.clear();
}

void ByteFallbackStage::finish() {
  flush();
  DecodeStage::finish();
}

void MetaspaceStage::put(std::string_view part, bool last) {
  std::string text(part);
  replace_all(text, mark_, drop_ ? "" : " ");
  if (last) drop_ = false;
  next().put(text, last);
}

void WordPieceStage::token(std::string_view text) {
  std::string out;
  if (any_ && starts_with(text, prefix_)) {
    out = text.substr(prefix_.size());
  } else {
    if (any_) out = " ";
    out += text;
  }
  any_ = true;
  if (cleanup_) clean_up(out);
  next().put(out, true);
}

void WordSuffixStage::token(std::string_view text) {
  if (any_) hand_on(" ");
  any_ = true;
  waiting_ = text;
}

void WordSuffixStage::hand_on(std::string_view end_of_word) {
  next().put(suffix_.replace_all(waiting_, end_of_word), true);
}

void WordSuffixStage::finish() {
  if (any_) hand_on("");
  any_ = false;
  DecodeStage::finish();
}

void CtcStage::token(std::string_view text) {
  if (any_ && text == previous_) return;
  any_ = true;
  previous_ = text;
  std::string out(text);
  replace_all(out, options_.padding, "");
  if (options_.cleanup) {
    clean_up(out);
    replace_all(out, options_.word_delimiter, " ");
  }
  if (!out.empty()) next().put(out, true);
}

void StripStage::put(std::string_view part, bool last) {
  while (start_left_ > 0 && starts_with(part, content_)) {
    part.remove_prefix(content_.size());
    --start_left_;
  }
  if (!part.empty()) start_left_ = 0;
  // The number of `content` at the end of the text so far, whether held back or new.
  std::size_t trailing = 0;
  std::size_t end = part.size();
  while (trailing < stop_ && end >= content_.size() &&
         part.substr(end - content_.size(), content_.size()) == content_) {
    end -= content_.size();
    ++trailing;
  }
  const std::size_t all = end == 0 ? held_ + trailing : trailing;
  const std::size_t keep = std::min(all, stop_);
  // Held characters that can no longer be at the end of the token are released.
  const std::size_t release = end == 0 ? all - keep : held_;
  std::string out;
  for (std::size_t i = 0; i < release; ++i) out += content_;
  out += part.substr(0, end);
  held_ = keep;
  if (last) {
    held_ = 0;
    start_left_ = start_;
  }
  if (last || !out.empty()) next().put(out, last);
}

std::size_t ReplaceStage::open_suffix(std::string_view text) const {
  const std::string_view plain = pattern_.plain();
  if (plain.empty()) return 0;
  std::size_t size = std::min(plain.size() - 1, text.size());
  while (size > 0 && text.substr(text.size() - size) != plain.substr(0, size)) --size;
  return size;
}

void ReplaceStage::put(std::string_view part, bool last) {
  if (last && held_.empty()) {
    next().put(pattern_.replace_all(part, content_), true);
    return;
  }
  held_.append(part);
  if (!last && !pattern_.is_plain()) return;  // an expression may still match until the token ends
  std::string text;
  text.swap(held_);
  if (!last) {
    // The beginning of a possible match is held back, but only text behind the last complete match.
    const std::string_view plain = pattern_.plain();
    std::size_t used = 0;
    for (std::size_t at; !plain.empty() && (at = text.find(plain, used)) != std::string::npos;) {
      used = at + plain.size();
    }
    const std::size_t open = open_suffix(std::string_view(text).substr(used));
    held_ = text.substr(text.size() - open);
    text.resize(text.size() - open);
  }
  if (last || !text.empty()) next().put(pattern_.replace_all(text, content_), last);
}

void SentencePieceStage::token(std::string_view text) {
  const int byte = byte_token_value(text);
  if (byte >= 0) {
    bytes_.push_back(static_cast<char>(byte));
    flush(false);
    return;
  }
  flush(true);
  if (at_start_ && options_.drop_first_space && starts_with(text, kSpaceMark)) {
    text.remove_prefix(kSpaceMark.size());
    if (!options_.drop_leading_spaces) at_start_ = false;
  }
  if (text.empty()) return;
  at_start_ = false;
  text_.assign(text);
  replace_all(text_, kSpaceMark, " ");
  next().put(text_, true);
}

void SentencePieceStage::flush(bool final) {
  if (bytes_.empty()) return;
  text_.clear();
  bytes_.erase(0, decode_lossy(bytes_, final, text_, Replacement::kByte));
  if (text_.empty()) return;
  at_start_ = false;
  next().put(text_, true);
}

void SentencePieceStage::finish() {
  flush(true);
  DecodeStage::finish();
}

}  // namespace bl
