#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/gguf_config.h"

namespace bl {

// The tokens of a GGUF file, checked.
class GgufVocabulary {
 public:
  enum class Kind {
    kByteLevel,      // BPE over bytes written as printable letters
    kSentencePiece,  // BPE by scores, bytes as a fallback
    kUnigram,        // the most likely segmentation by scores
  };
  enum class Type : std::uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,
  };

  // Returns nullopt if the file holds no vocabulary.
  static std::optional<GgufVocabulary> read(const GgufMetadata& metadata, const Json& tables);

  Kind kind() const { return kind_; }
  std::span<const std::string_view> tokens() const { return tokens_; }
  Type type(std::size_t id) const { return types_[id]; }
  // Empty for kByteLevel.
  const std::vector<double>& scores() const { return scores_; }
  // "left right", as stored.
  std::span<const std::string_view> merges() const { return merges_; }
  // What the file's pre-tokenizer does: an object of archs/gguf-tokenizers.json.
  const Json& pre() const { return pre_; }

  std::optional<std::size_t> bos() const { return bos_; }
  std::optional<std::size_t> eos() const { return eos_; }
  std::optional<std::size_t> unknown() const { return unknown_; }
  std::optional<std::size_t> padding() const { return padding_; }
  bool add_bos() const { return add_bos_ && bos_.has_value(); }
  bool add_eos() const { return add_eos_ && eos_.has_value(); }
  bool add_space_prefix() const { return add_space_prefix_; }
  // Whether the token has no text of its own: it is padding, or repeats an earlier token.
  bool is_filler(std::size_t id) const { return filler_[id]; }

 private:
  void read_tokens(const GgufFile& file);
  void read_specials(const GgufFile& file);
  void read_pre(const GgufFile& file, const Json& tables);

  Kind kind_ = Kind::kByteLevel;
  std::span<const std::string_view> tokens_;
  std::span<const std::string_view> merges_;
  std::vector<Type> types_;
  std::vector<double> scores_;
  std::vector<bool> filler_;
  Json pre_ = Json::object();
  std::optional<std::size_t> bos_, eos_, unknown_, padding_;
  bool add_bos_ = false;
  bool add_eos_ = false;
  bool add_space_prefix_ = false;
};

}  // namespace bl
