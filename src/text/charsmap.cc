#include "text/charsmap.h"

#include <cstring>

#include "base/error.h"
#include "base/utf8.h"

namespace bl {
namespace {

// The fields of a unit of the double array, laid out as in darts-clone.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7fffffffu; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000ffu; }
std::uint32_t offset_of(std::uint32_t unit) { return unit >> 10 << ((unit & 0x200u) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view blob, std::string_view where) {
  std::uint32_t trie_bytes = 0;
  if (blob.size() >= 4) std::memcpy(&trie_bytes, blob.data(), 4);
  if (blob.size() < 4 || trie_bytes > blob.size() - 4 || trie_bytes % 4 != 0 || trie_bytes == 0) {
    fail(ErrorCode::kInvalidFile,
         "{}: the charsmap has {} bytes and says that its trie takes {}, which should be a "
         "multiple of 4 and fit",
         where, blob.size(), trie_bytes);
  }
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), blob.data() + 4, trie_bytes);
  replacements_ = blob.substr(4 + trie_bytes);
  if (!is_valid_utf8(replacements_)) {
    fail(ErrorCode::kInvalidFile, "{}: the replacements in the charsmap are not UTF-8", where);
  }
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool longest) const {
  std::optional<Match> found;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (node >= units_.size()) break;
    if (!has_leaf(unit)) continue;
    const std::uint32_t value = value_of(units_[node]);
    if (value >= replacements_.size()) continue;
    // Only a damaged file has an index into the middle of a character.
    if (is_continuation(replacements_[value])) continue;
    found = Match{i + 1, std::string_view(replacements_.c_str() + value)};
    if (!longest) break;
  }
  return found;
}

std::string decode_base64(std::string_view text, std::string_view where) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int count = 0;
  std::size_t i = 0;
  for (; i < text.size() && text[i] != '='; ++i) {
    const char c = text[i];
    std::uint32_t digit = 0;
    if (c >= 'A' && c <= 'Z') {
      digit = static_cast<std::uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      digit = static_cast<std::uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      digit = static_cast<std::uint32_t>(c - '0') + 52;
    } else if (c == '+' || c == '/') {
      digit = c == '+' ? 62 : 63;
    } else {
      fail(ErrorCode::kInvalidFile, "{}: byte {} is not base64", where, i);
    }
    bits = bits << 6 | digit;
    if (++count % 4 != 1)
      out.push_back(static_cast<char>(bits >> ((4 - count % 4) % 4 * 2) & 0xff));
  }
  if (text.find_first_not_of('=', i) != std::string_view::npos) {
    fail(ErrorCode::kInvalidFile, "{}: there is text after the end of the base64", where);
  }
  return out;
}

}  // namespace bl
