#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace bl {

// Turns a piece of text into tokens. Immutable and thread-safe; the working memory of encoding
// lives in a Session.
class TokenModel {
 public:
  class Session {
   public:
    virtual ~Session() = default;
    // Appends the ids of `piece` (valid UTF-8, not empty) to `out`. Throws kInvalidArgument if the
    // vocabulary has neither tokens for it nor one for unknown text.
    virtual void encode(std::string_view piece, std::vector<std::int32_t>& out) = 0;
  };

  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~TokenModel() = default;

  // `text_bytes` is about how much text the session will see. The model must outlive the session.
  virtual std::unique_ptr<Session> start(std::size_t text_bytes) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

// The ids of words seen before, for models whose result depends on the word alone. It has a fixed
// size: a new word replaces an old one. Only long texts get one, as short ones hardly repeat words.
class WordCache {
 public:
  explicit WordCache(std::size_t text_bytes);

  // The ids of `word`; empty if it is not known.
  std::span<const std::int32_t> find(std::string_view word) const;
  void store(std::string_view word, std::span<const std::int32_t> ids);

 private:
  struct Slot {
    std::uint8_t word_size = 0;
    std::uint8_t ids_size = 0;
    std::array<char, 30> word;
    std::array<std::int32_t, 8> ids;
  };
  std::vector<Slot> slots_;  // empty, or kSlots of them
};

// The ids of the tokens <0x00> to <0xFF>, as far as a vocabulary has them.
class ByteTokens {
 public:
  explicit ByteTokens(const Vocabulary& vocabulary);
  // Appends the ids of the bytes of `text`. Returns false, having appended nothing, if one has no
  // token.
  bool append(std::string_view text, std::vector<std::int32_t>& out) const;
  std::int32_t id(unsigned char byte) const { return ids_[byte]; }

 private:
  std::array<std::int32_t, 256> ids_;
};

}  // namespace bl
