#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/byte_trie.h"

namespace bl {

// A token that is found in the text itself, before the model sees the text.
struct AddedToken {
  std::string content;
  int id = -1;
  bool single_word = false;  // counts only where no word character touches it
  bool lstrip = false;       // takes in the white space before it
  bool rstrip = false;       // takes in the white space after it
  bool normalized = false;   // is looked for in the normalized text, by its normalized content
  bool special = false;      // is left out when decoding skips special tokens
  bool in_text = true;       // is looked for in text at all
};

// A part of a text: plain text, or an added token that was found in it.
struct TextPart {
  std::size_t begin = 0;
  std::size_t end = 0;
  int id = -1;  // -1 for plain text
};

// Finds added tokens in a text before the model sees it: the leftmost one, and the longest of those
// that begin there.
class AddedTokens {
 public:
  static constexpr std::size_t kMaxContent = 4096;  // bounds the work a text can cause

  // Adds a token, whose content must not be empty; call in the order of the file. The first of
  // several entries with the same content counts, but is special if any of them is.
  void add(AddedToken token);
  // Makes the token set searchable. Call it once, after the last add(). `normalize` is the
  // tokenizer's own normalization.
  void finish(const std::function<std::string(std::string_view)>& normalize);

  bool empty() const { return tokens_.empty(); }
  // Return nullptr if there is no such token.
  const AddedToken* find(int id) const;
  const AddedToken* find(std::string_view content) const;
  // One more than the highest id.
  int id_limit() const { return id_limit_; }

  struct Search {
    bool normalized = false;  // search for the tokens that want normalized text, or for the others
    bool special = true;      // whether special tokens are recognised or left as plain text
    // Offsets, in rising order, at which no special token begins.
    std::span<const std::size_t> plain = {};
  };
  // Cuts a text (valid UTF-8) into plain parts and tokens, in order and none empty.
  std::vector<TextPart> split(std::string_view text, const Search& search) const;
  // The offsets in a text at which a special token begins, or may begin if more text follows.
  std::vector<std::size_t> special_begins(std::string_view text) const;

 private:
  // The searchable tokens of one kind. `starts` marks the bytes with which a token begins.
  struct Finder {
    std::vector<std::string> patterns;
    ByteTrie trie;
    bool starts[256] = {};
  };
  void make_finder(Finder& finder, const std::vector<std::int32_t>& indices);
  bool special_may_begin(const Finder& finder, std::string_view text, std::size_t at) const;
  // Applies the token's conditions to a match, and widens it by white space. Returns false if the
  // match does not count.
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
