#pragma once
#include <cstdint>
#include <vector>

#include "text/component_reader.h"

namespace bl {

// What is put around the tokens of a text: a row of special tokens and places for the text itself.
// All post-processors of tokenizer.json come down to that for a single text.
class PostProcessor {
 public:
  PostProcessor() : items_{kText} {}
  // From the object of a tokenizer.json: TemplateProcessing, BertProcessing, RobertaProcessing,
  // ByteLevel, Sequence. Throws kInvalidFile or kUnsupported.
  explicit PostProcessor(const ComponentReader& reader);
  // Special tokens before and behind the text.
  PostProcessor(std::vector<std::int32_t> before, const std::vector<std::int32_t>& behind);

  // `ids` with its surroundings; without `add_special` only the text remains (as often as the
  // template has it).
  std::vector<std::int32_t> apply(std::vector<std::int32_t> ids, bool add_special) const;

 private:
  static constexpr std::int32_t kText = -1;
  void read(const ComponentReader& reader, int depth);
  void read_template(const ComponentReader& reader);
  void surround(const std::vector<std::int32_t>& row);

  std::vector<std::int32_t> items_;  // ids, or kText
};

}  // namespace bl
