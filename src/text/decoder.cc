#include "text/decoder.h"

#include "base/error.h"
#include "base/utf8.h"
#include "text/decode_stages.h"

namespace bl {
namespace {

constexpr std::size_t kMaxStages = 64;
constexpr std::int64_t kMaxStrip = 1 << 20;

template <class Stage>
Decoder::MakeStage plain_stage() {
  return [](std::unique_ptr<DecodeStage> next) { return std::make_unique<Stage>(std::move(next)); };
}

Decoder::MakeStage metaspace(const ComponentReader& reader) {
  std::string mark;
  append_utf8(reader.character("replacement"), mark);
  bool drop = reader.boolean_or("add_prefix_space", true);
  if (reader.has("prepend_scheme")) drop = reader.string("prepend_scheme") != "never";
  return [mark, drop](std::unique_ptr<DecodeStage> next) {
    return std::make_unique<MetaspaceStage>(std::move(next), mark, drop);
  };
}

Decoder::MakeStage strip(const ComponentReader& reader) {
  std::string content;
  append_utf8(reader.character("content"), content);
  const std::int64_t start = reader.integer("start");
  const std::int64_t stop = reader.integer("stop");
  if (start < 0 || start > kMaxStrip) reader.wrong("start", "0 to 1048576");
  if (stop < 0 || stop > kMaxStrip) reader.wrong("stop", "0 to 1048576");
  return [content, start, stop](std::unique_ptr<DecodeStage> next) {
    return std::make_unique<StripStage>(std::move(next), content, static_cast<std::size_t>(start),
                                        static_cast<std::size_t>(stop));
  };
}

Decoder::MakeStage replace(const ComponentReader& reader) {
  auto pattern = std::make_shared<const TextPattern>(reader, "pattern");
  std::string content = reader.string("content");
  return [pattern, content](std::unique_ptr<DecodeStage> next) {
    return std::make_unique<ReplaceStage>(std::move(next), *pattern, content);
  };
}

Decoder::MakeStage word_piece(const ComponentReader& reader) {
  std::string prefix = reader.string_or("prefix", "##");
  const bool cleanup = reader.boolean_or("cleanup", true);
  return [prefix, cleanup](std::unique_ptr<DecodeStage> next) {
    return std::make_unique<WordPieceStage>(std::move(next), prefix, cleanup);
  };
}

Decoder::MakeStage ctc(const ComponentReader& reader) {
  CtcStage::Options options{reader.string_or("pad_token", "<pad>"),
                            reader.string_or("word_delimiter_token", "|"),
                            reader.boolean_or("cleanup", true)};
  return [options](std::unique_ptr<DecodeStage> next) {
    return std::make_unique<CtcStage>(std::move(next), options);
  };
}

Decoder::MakeStage word_suffix(const ComponentReader& reader) {
  std::string suffix = reader.string_or("suffix", "</w>");
  return [suffix](std::unique_ptr<DecodeStage> next) {
    return std::make_unique<WordSuffixStage>(std::move(next), suffix);
  };
}

}  // namespace

Decoder::Decoder() : stages_{plain_stage<JoinStage>()} {}

Decoder::Decoder(const ComponentReader& reader) { read(reader, 0); }

void Decoder::read(const ComponentReader& reader, int depth) {
  const std::string type = reader.type();
  if (stages_.size() >= kMaxStages) {
    fail(ErrorCode::kInvalidFile, "{}: there are more than {} decoders in a row", reader.where(),
         kMaxStages);
  }
  if (type == "Sequence") {
    reader.check_nesting("decoders", depth);
    for (const ComponentReader& step : reader.children("decoders")) read(step, depth + 1);
  } else if (type == "ByteLevel") {
    stages_.push_back(plain_stage<ByteLevelStage>());
  } else if (type == "ByteFallback") {
    stages_.push_back(plain_stage<ByteFallbackStage>());
  } else if (type == "Fuse") {
    stages_.push_back(plain_stage<FuseStage>());
  } else if (type == "Metaspace") {
    stages_.push_back(metaspace(reader));
  } else if (type == "WordPiece") {
    stages_.push_back(word_piece(reader));
  } else if (type == "BPEDecoder") {
    stages_.push_back(word_suffix(reader));
  } else if (type == "Strip") {
    stages_.push_back(strip(reader));
  } else if (type == "Replace") {
    stages_.push_back(replace(reader));
  } else if (type == "CTC") {
    stages_.push_back(ctc(reader));
  } else {
    fail(ErrorCode::kUnsupported, "{}: decoder type '{}' is not known", reader.where(), type);
  }
}

std::unique_ptr<DecodeStage> Decoder::start(std::string& out) const {
  std::unique_ptr<DecodeStage> chain = std::make_unique<CollectStage>(out);
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    chain = (*stage)(std::move(chain));
  }
  return chain;
}

}  // namespace bl
