#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace bl::test {

// A tokenizer with one token for each byte (0 … 255), which encodes and decodes any text. The ids
// of `special` follow.
std::unique_ptr<Tokenizer> make_byte_tokenizer(const std::vector<std::string>& special);

}  // namespace bl::test
