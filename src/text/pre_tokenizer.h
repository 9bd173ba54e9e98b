#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/component_reader.h"

namespace bl {

// A text on its way to the model, cut into the pieces that the model will see one by one.
struct PreTokens {
  struct Piece {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool at_origin = false;  // begins where the whole input begins
  };
  std::string text;           // valid UTF-8
  std::vector<Piece> pieces;  // in order, none empty; text between them was removed

  std::string_view view(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

// One step of cutting a text into pieces. Immutable and thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Rewrites the text and cuts the pieces further, in place.
  virtual void apply(PreTokens& tokens) const = 0;
};

// Reads the pre-tokenizer of a tokenizer.json: ByteLevel, Split, Whitespace, WhitespaceSplit,
// Digits, Punctuation, Metaspace, BertPreTokenizer, CharDelimiterSplit, UnicodeScripts, FixedLength
// or Sequence. Throws kInvalidFile or kUnsupported.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const ComponentReader& reader);

}  // namespace bl
