#pragma once
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "chat_frame.h"
#include "engine/engine.h"

namespace bl {

// The words that texts may begin with: those of all tokens that begin a word.
class FirstWords {
 public:
  // Throws kUnsupported where no token has a letter at its beginning.
  explicit FirstWords(const ModelSession& session);
  // The tokens of a text that is one drawn word, with what the tokenizer puts before a text.
  std::vector<std::int32_t> draw(std::mt19937_64& random) const;

 private:
  const ModelSession& session_;
  std::vector<std::string> words_;
};

// One row that a model writes piece by piece: `engine` answers next_request(), add() takes the
// answer, until the row is full.
class RowWriter {
 public:
  // `frame`: null for a row of texts. `words` and `frame` must outlive this object.
  RowWriter(const FirstWords& words, const ChatFrame* frame, std::int64_t length,
            std::uint64_t seed);

  bool full() const { return std::ssize(row_) >= length_; }
  // Must not be called when the row is full.
  Request next_request(const Tokenizer& tokenizer);
  void add(const Answer& answer);
  std::vector<std::int32_t> take();

 private:
  enum class Part { kText, kMessage, kAnswer };
  void begin();
  void append(std::span<const std::int32_t> ids);
  // What the template writes behind the part that is being written; empty for a text.
  std::span<const std::int32_t> closing() const;

  const FirstWords& words_;
  const ChatFrame* frame_;
  std::int64_t length_;
  std::mt19937_64 random_;
  std::vector<std::int32_t> row_;
  std::size_t text_begin_ = 0;  // where the present text or conversation begins in the row
  Part part_ = Part::kText;
};

}  // namespace bl
