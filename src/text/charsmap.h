#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

// The "precompiled charsmap" of sentencepiece: a double-array trie (darts-clone layout) whose
// values point at zero-terminated replacements. The blob comes from a file, so every index is
// checked.
class Charsmap {
 public:
  // Layout: u32 size of the trie in bytes, the trie (u32 units), the replacements. Throws
  // kInvalidFile, naming `where`.
  Charsmap(std::string_view blob, std::string_view where);

  struct Match {
    std::size_t size;              // bytes of the text that are replaced
    std::string_view replacement;  // valid UTF-8
  };
  // Among the keys that `text` begins with, the longest or the shortest one.
  std::optional<Match> longest(std::string_view text) const { return find(text, true); }
  std::optional<Match> shortest(std::string_view text) const { return find(text, false); }

 private:
  std::optional<Match> find(std::string_view text, bool longest) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

// RFC 4648 base64 with padding. Throws kInvalidFile, naming `where`.
std::string decode_base64(std::string_view text, std::string_view where);

}  // namespace bl
