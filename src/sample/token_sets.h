#pragma once
// Texts and kinds of tokens as sets of ids, which is what the chain works with. Each walks over the
// whole vocabulary: do it once a model, not once a request.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bl {

class Tokenizer;

// Ids of the tokens whose text contains one of the texts, ascending: what sequence breakers of DRY
// are. With `specials`, special tokens too.
std::vector<std::int32_t> tokens_containing(const Tokenizer& tokenizer,
                                            std::span<const std::string> texts, bool specials);

// What XTC spares unless a request says otherwise: tokens that hold a line break, and special ones.
std::vector<std::int32_t> xtc_protected_tokens(const Tokenizer& tokenizer);

}  // namespace bl
