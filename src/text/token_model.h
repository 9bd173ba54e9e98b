#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace bl {

// What turns a piece of text into tokens. Immutable, thread-safe; the working memory of one call of
// encode lives in a Session.
class TokenModel {
 public:
  class Session {
   public:
    virtual ~Session() = default;
    // Appends the ids of `piece` (valid UTF-8, not empty) to `out`. Throws kInvalidArgument when
    // the vocabulary has neither tokens for it nor one for unknown text.
    virtual void encode(std::string_view piece, std::vector<std::int32_t>& out) = 0;
  };

  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~TokenModel() = default;

  // `text_bytes`: about how much text the session will see. The model must outlive it.
  virtual std::unique_ptr<Session> start(std::size_t text_bytes) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

// Ids of words seen before, for models whose result depends on the word alone. Fixed size: a new
// word takes the place of an old one. Long texts repeat their words, short ones do not need it.
class WordCache {
 public:
  explicit WordCache(std::size_t text_bytes);

  // The ids of `word`; empty when it is not known.
  std::span<const std::int32_t> find(std::string_view word) const;
  void store(std::string_view word, std::span<const std::int32_t> ids);

 private:
  struct Slot {
    std::uint8_t word_size = 0;
    std::uint8_t ids_size = 0;
    std::array<char, 30> word;
    std::array<std::int32_t, 8> ids;
  };
  std::vector<Slot> slots_;  // none, or a power of two of them
};

// The ids of <0x00> to <0xFF> where a vocabulary has them all.
class ByteTokens {
 public:
  explicit ByteTokens(const Vocabulary& vocabulary);
  // Appends the ids of the bytes of `text`. False, appending nothing, when one has no token.
  bool append(std::string_view text, std::vector<std::int32_t>& out) const;
  std::int32_t id(unsigned char byte) const { return ids_[byte]; }

 private:
  std::array<std::int32_t, 256> ids_;
};

}  // namespace bl
