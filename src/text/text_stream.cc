#include "text/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/tokenizer_parts.h"

namespace bl {

bool SpecialText::skips(const Tokenizer& tokenizer, std::int32_t id) const {
  return skip && tokenizer.is_special(id) && !std::binary_search(shown.begin(), shown.end(), id);
}

TextStream::TextStream(const Tokenizer& tokenizer, SpecialText special)
    : tokenizer_(tokenizer),
      special_(special),
      out_(std::make_unique<std::string>()),
      stage_(tokenizer.parts_->decoder.start(*out_)) {}

TextStream::~TextStream() = default;

std::string TextStream::push(std::int32_t id) {
  BL_CHECK(stage_ != nullptr);
  tokenizer_.decode_one(id, special_.skips(tokenizer_, id), *stage_);
  return take();
}

std::string TextStream::finish() {
  BL_CHECK(stage_ != nullptr);
  stage_->finish();
  stage_.reset();
  return take();
}

std::string TextStream::take() { return std::exchange(*out_, {}); }

}  // namespace bl
