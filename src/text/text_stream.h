#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace bl {

// Decodes tokens as they come. Text that push() returns is certain: it never ends within a
// character, and no later token changes it. All of it together with finish() is what
// Tokenizer::decode() gives for the same ids. Time is linear in the number of tokens.
class TextStream {
 public:
  // The tokenizer must outlive the stream.
  TextStream(const Tokenizer& tokenizer, bool skip_special);
  ~TextStream();

  // Adds a token and returns the text that has become certain, which may be empty.
  std::string push(std::int32_t id);
  // Returns the text that was held back. The stream takes no more tokens after that.
  std::string finish();

 private:
  std::string take();

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::unique_ptr<std::string> out_;  // the stages point to it
  std::unique_ptr<DecodeStage> stage_;
};

}  // namespace bl
