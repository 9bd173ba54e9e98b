#include "text/text_stream.h"

#include <utility>

#include "base/check.h"
#include "text/tokenizer_parts.h"

namespace bl {

TextStream::TextStream(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      out_(std::make_unique<std::string>()),
      stage_(tokenizer.parts_->decoder.start(*out_)) {}

TextStream::~TextStream() = default;

std::string TextStream::push(std::int32_t id) {
  BL_CHECK(stage_ != nullptr);
  tokenizer_.decode_one(id, skip_special_, *stage_);
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
