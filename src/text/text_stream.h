#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "text/tokenizer.h"

namespace bl {

// Which special tokens give text.
struct SpecialText {
  // NOLINTNEXTLINE(google-explicit-constructor): true and false are the usual cases.
  SpecialText(bool skip_all, std::span<const std::int32_t> but = {}) : skip(skip_all), shown(but) {}
  bool skip;                            // special tokens give no text …
  std::span<const std::int32_t> shown;  // … except for these ids, in rising order
  bool skips(const Tokenizer& tokenizer, std::int32_t id) const;
};

// Decodes tokens as they come. Text that push() returns is certain: it never ends within a
// character, and no later token changes it. All of it together with finish() is what
// Tokenizer::decode() gives for the same ids. Time is linear in the number of tokens.
class TextStream {
 public:
  // The tokenizer and the ids of `special` must outlive the stream.
  TextStream(const Tokenizer& tokenizer, SpecialText special);
  ~TextStream();

  // Adds a token and returns the text that has become certain, which may be empty.
  std::string push(std::int32_t id);
  // Returns the text that was held back. The stream takes no more tokens after that.
  std::string finish();

 private:
  std::string take();

  const Tokenizer& tokenizer_;
  SpecialText special_;
  std::unique_ptr<std::string> out_;  // the stages point to it
  std::unique_ptr<DecodeStage> stage_;
};

}  // namespace bl
