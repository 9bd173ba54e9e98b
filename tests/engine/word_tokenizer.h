#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace bl::test {

// A tokenizer whose token i says pieces[i] (byte-level: "Ġ" is a space). Knows no merges, so it is
// for decoding; `special` come behind the pieces. With another `decoder` of tokenizer.json, pieces
// are what that makes of them.
std::unique_ptr<Tokenizer> make_word_tokenizer(const std::vector<std::string>& pieces,
                                               const std::vector<std::string>& special = {},
                                               const char* decoder = "ByteLevel");

// All texts over the first `letters` letters, the short ones first.
std::vector<std::string> letter_pieces(std::size_t count, int letters);

}  // namespace bl::test
