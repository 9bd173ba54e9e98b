#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/byte_trie.h"

namespace bl {

struct AddedToken {
  std::string content;
  int id = -1;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for in the normalized text, by its normalized content
  bool special = false;      // left out when decoding skips special tokens
  bool in_text = true;       // looked for in text at all
};

// A part of a text: plain text, or an added token that was found in it.
struct TextPart {
  std::size_t begin = 0;
  std::size_t end = 0;
  int id = -1;  // -1: plain text
};

// Tokens that are found in a text before the model sees it: leftmost, and of those the longest.
class AddedTokens {
 public:
  static constexpr std::size_t kMaxContent = 4096;  // bounds the work a text can cause

  // In the order of the file; of the same content the first counts. Contents are not empty.
  void add(AddedToken token);
  // Call once after the last add(). `normalize` is the tokenizer's own normalization.
  void finish(const std::function<std::string(std::string_view)>& normalize);

  bool empty() const { return tokens_.empty(); }
  const AddedToken* find(int id) const;
  const AddedToken* find(std::string_view content) const;
  int id_limit() const { return id_limit_; }

  struct Search {
    bool normalized = false;  // for these tokens, or for the others
    bool special = true;      // special ones are tokens, not text like any other
  };
  // Cuts a text (valid UTF-8) into parts, none empty.
  std::vector<TextPart> split(std::string_view text, const Search& search) const;

 private:
  // Tokens of one kind, by trie; starts_ says at which bytes a search is worth it.
  struct Finder {
    std::vector<std::string> patterns;
    ByteTrie trie;
    bool starts[256] = {};
  };
  void make_finder(Finder& finder, const std::vector<std::int32_t>& indices);
  // Applies the token's conditions to a match. False: it does not count.
  bool adjust(const AddedToken& token, std::string_view text, std::size_t used,
              TextPart& part) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<int, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
  int id_limit_ = 0;
  Finder raw_;
  Finder normalized_;
};

}  // namespace bl
