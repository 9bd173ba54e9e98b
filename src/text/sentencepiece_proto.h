#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

// The fields of sentencepiece_model.proto that matter for encoding and decoding, with its defaults.
struct SentencePieceProto {
  enum class Type {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  enum class Kind { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  struct Piece {
    std::string_view text;  // valid UTF-8, not empty
    float score = 0;        // finite
    Type type = Type::kNormal;
  };
  std::vector<Piece> pieces;
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  std::string unknown_surface = " \xe2\x81\x87 ";
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  std::string unk_piece = "<unk>";
  std::string pad_piece = "<pad>";
  std::string_view charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Parses the bytes of a model file; views in the result point into `bytes`. Throws kInvalidFile,
// naming `name`.
SentencePieceProto parse_sentencepiece_proto(std::string_view bytes, const std::string& name);

}  // namespace bl
