#pragma once
#include <string>
#include <vector>

namespace bl {

class Tokenizer;

// What each token adds to a text within which it stands: [vocab_size()] strings of bytes, which
// need not be whole characters (byte-level tokens, <0xHH>). Empty for special tokens and for ids
// that do not exist. Found by decoding, so that it holds whatever the decoder does: a space before
// a word
// ("▁the", WordPiece), replaced texts, stripped ones. What a decoder does between certain tokens
// only (clean-up of spaces before punctuation) is not in it.
//
// Walks over the whole vocabulary, about a microsecond a token: do it once a model.
std::vector<std::string> token_bytes(const Tokenizer& tokenizer);

}  // namespace bl
