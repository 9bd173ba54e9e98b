#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "text/component_reader.h"
#include "text/decode_stage.h"

namespace bl {

// How the texts of tokens become plain text. Immutable, thread-safe: the state of one decoding is
// the chain of stages that start() makes.
class Decoder {
 public:
  using MakeStage = std::function<std::unique_ptr<DecodeStage>(std::unique_ptr<DecodeStage> next)>;

  // Without a decoder, tokens are written with a space between them.
  Decoder();
  // From the object of a tokenizer.json: ByteLevel, Metaspace, WordPiece, BPEDecoder, ByteFallback,
  // Fuse, Strip, Replace, CTC, Sequence. Throws kInvalidFile or kUnsupported.
  explicit Decoder(const ComponentReader& reader);
  explicit Decoder(MakeStage stage) : stages_{std::move(stage)} {}

  // A fresh chain that writes to `out`, which must outlive it.
  std::unique_ptr<DecodeStage> start(std::string& out) const;

 private:
  void read(const ComponentReader& reader, int depth);

  std::vector<MakeStage> stages_;
};

}  // namespace bl
