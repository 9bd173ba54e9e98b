#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/prompt_healing.h"
#include "engine/request.h"
#include "sample/pick_args.h"

namespace bl {

// A token of an answer with what came of it.
struct AnswerPiece {
  std::int32_t id = 0;
  std::string text{};
  std::optional<TokenLogprobs> logprobs{};
  std::vector<float> logits{};
  bool healed = false;  // stands for a token of the prompt
};

// The newest tokens of an answer with banned strings, which its reader has not got yet, and what
// has been tried and taken back at which position.
class HeldAnswer {
 public:
  // Where the answer stands behind a token.
  struct Place {
    SamplerState sampler;
    HealingProgress healing{};
  };
  explicit HeldAnswer(const Place& begin) : begin_(begin) {}

  void add(AnswerPiece piece, const Place& after);
  // Gives out all but the newest `open` tokens, oldest first. `length`: tokens of the text.
  template <class Give>
  void release(std::size_t open, std::int64_t length, Give&& give) {
    while (held_.size() > open) {
      begin_ = held_.front().after;
      AnswerPiece piece = std::move(held_.front().piece);
      held_.pop_front();
      rewinds_ = 0;
      give(std::move(piece));
    }
    forget_bars(length - static_cast<std::int64_t>(held_.size()));
  }

  // Takes the newest `tokens` back, of a text whose length is `length` then; the first of them will
  // not be chosen there again. Returns where the answer stands then.
  Place take_back(std::size_t tokens, std::int64_t length);
  // Tokens that may not be chosen behind a text of this length.
  std::span<const std::int32_t> barred(std::int64_t length) const;
  // Since a token was last given out.
  std::int64_t rewinds() const { return rewinds_; }

 private:
  struct Held {
    AnswerPiece piece;
    Place after;
  };
  struct Bar {
    std::int64_t position = 0;
    std::vector<std::int32_t> ids;
  };
  void forget_bars(std::int64_t before);

  Place begin_;  // behind the last token given out
  std::deque<Held> held_;
  std::deque<Bar> bars_;  // by position
  std::int64_t rewinds_ = 0;
};

}  // namespace bl
