#pragma once
#include <cstdint>
#include <vector>

#include "text/component_reader.h"

namespace bl {

// Puts special tokens around the tokens of a text: a row of special tokens with places for the
// text. For a single text, every post-processor of tokenizer.json comes down to that.
class PostProcessor {
 public:
  PostProcessor() : items_{kText} {}
  // Reads the post-processor of a tokenizer.json: TemplateProcessing, BertProcessing,
  // RobertaProcessing, ByteLevel or Sequence. Throws kInvalidFile or kUnsupported.
  explicit PostProcessor(const ComponentReader& reader);
  // Puts special tokens before and behind the text.
  PostProcessor(std::vector<std::int32_t> before, const std::vector<std::int32_t>& behind);

  // Returns `ids` with the special tokens around them. Without `add_special` only the text remains,
  // as often as the template has it.
  std::vector<std::int32_t> apply(std::vector<std::int32_t> ids, bool add_special) const;

 private:
  static constexpr std::int32_t kText = -1;
  void read(const ComponentReader& reader, int depth);
  void read_template(const ComponentReader& reader);
  void surround(const std::vector<std::int32_t>& row);

  std::vector<std::int32_t> items_;  // special ids, and kText in the places for the text
};

}  // namespace bl
