#pragma once
#include <memory>
#include <string>

#include "text/component_reader.h"

namespace bl {

struct NormalizedText {
  std::string text;        // valid UTF-8
  bool at_origin = false;  // the first character is the first one of the whole input
};

// One step of bringing a text into the form that the vocabulary knows. Immutable and thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Rewrites the text in place.
  virtual void apply(NormalizedText& text) const = 0;
};

// Reads the normalizer of a tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents,
// Nmt, Replace, Prepend, ByteLevel, BertNormalizer, Precompiled or Sequence. Throws kInvalidFile or
// kUnsupported.
std::unique_ptr<Normalizer> make_normalizer(const ComponentReader& reader);

}  // namespace bl
