// Input: a byte that chooses the kind of file (even: tokenizer.json, odd: sentencepiece model), two
// bytes with the size of the file, the file, and a text to encode with it.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace {

void exercise(const bl::Tokenizer& tokenizer, std::string_view text) {
  try {
    const auto ids = tokenizer.encode(text);
    const std::string whole = tokenizer.decode(ids, false);
    tokenizer.decode(ids, true);
    bl::TextStream stream(tokenizer, false);
    std::string streamed;
    for (const auto id : ids) streamed += stream.push(id);
    if (streamed + stream.finish() != whole) std::abort();
  } catch (const bl::Error&) {
  }
  // Ids of all kinds, also such as no text gives.
  std::vector<std::int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte) - 2);
  tokenizer.decode(ids, false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3 || size > (1u << 16)) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view rest = input.substr(3);
  const std::size_t file_size = std::min<std::size_t>(data[1] + 256u * data[2], rest.size());
  const std::string_view file = rest.substr(0, file_size);
  const std::string_view text = rest.substr(file_size);
  try {
    const auto tokenizer = data[0] % 2 == 0
                               ? bl::Tokenizer::from_json(file, "", "fuzz.json")
                               : bl::Tokenizer::from_sentencepiece(file, "", "fuzz.model");
    exercise(*tokenizer, text);
  } catch (const bl::Error&) {
  }
  return 0;
}
