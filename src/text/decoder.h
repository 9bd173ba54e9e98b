#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "text/component_reader.h"
#include "text/decode_stage.h"

namespace bl {

// Says how the texts of tokens become plain text. Immutable and thread-safe: the state of one
// decoding is in the chain of stages that start() makes.
class Decoder {
 public:
  using MakeStage = std::function<std::unique_ptr<DecodeStage>(std::unique_ptr<DecodeStage> next)>;

  // A model without a decoder: tokens are written with a space between them.
  Decoder();
  // Reads the decoder of a tokenizer.json: ByteLevel, Metaspace, WordPiece, BPEDecoder,
  // ByteFallback, Fuse, Strip, Replace, CTC or Sequence. Throws kInvalidFile or kUnsupported.
  explicit Decoder(const ComponentReader& reader);
  explicit Decoder(MakeStage stage) : stages_{std::move(stage)} {}

  // Makes a chain that writes to `out`, which must outlive it.
  std::unique_ptr<DecodeStage> start(std::string& out) const;

 private:
  void read(const ComponentReader& reader, int depth);

  std::vector<MakeStage> stages_;
};

}  // namespace bl
