#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace bl {

// Decodes tokens as they come. What push() returns is certain: it never ends within a character and
// no later token changes it. All of it and finish() together are what Tokenizer::decode() gives for
// the same ids. Time is linear in the number of tokens.
class TextStream {
 public:
  // The tokenizer must outlive the stream.
  TextStream(const Tokenizer& tokenizer, bool skip_special);
  ~TextStream();

  std::string push(std::int32_t id);
  // What was held back; the stream is then at its end and takes no more tokens.
  std::string finish();

 private:
  std::string take();

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::unique_ptr<std::string> out_;  // the stages point at it
  std::unique_ptr<DecodeStage> stage_;
};

}  // namespace bl
