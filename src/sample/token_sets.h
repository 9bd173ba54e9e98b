#pragma once
// Turns texts and kinds of tokens into sets of ids, which the chain works with. Each function walks
// the whole vocabulary: call it once per model, not once per request.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bl {

class Tokenizer;

// Returns the ids, ascending, of the tokens whose text contains one of `texts`, as DRY's sequence
// breakers need. With `specials`, all special tokens as well.
std::vector<std::int32_t> tokens_containing(const Tokenizer& tokenizer,
                                            std::span<const std::string> texts, bool specials);

// The tokens that XTC spares by default: those that contain a line break, and special tokens.
std::vector<std::int32_t> xtc_protected_tokens(const Tokenizer& tokenizer);

}  // namespace bl
