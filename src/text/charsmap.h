#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

// The "precompiled charsmap" of sentencepiece: a double-array trie (darts-clone layout) whose
// values point to zero-terminated replacements. The blob comes from a file, so every index is
// checked.
class Charsmap {
 public:
  // `blob` is a u32 with the trie's size in bytes, the trie (u32 units), and the replacements.
  // Throws kInvalidFile, naming `where`.
  Charsmap(std::string_view blob, std::string_view where);

  struct Match {
    std::size_t size;              // the bytes of the text that are replaced
    std::string_view replacement;  // valid UTF-8
  };
  // The longest or the shortest key that `text` begins with.
  std::optional<Match> longest(std::string_view text) const { return find(text, true); }
  std::optional<Match> shortest(std::string_view text) const { return find(text, false); }

 private:
  std::optional<Match> find(std::string_view text, bool longest) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

// Decodes base64 (RFC 4648); the padding may be missing. Throws kInvalidFile, naming `where`.
std::string decode_base64(std::string_view text, std::string_view where);

}  // namespace bl
