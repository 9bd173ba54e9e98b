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

// A token of an answer, and what its reader gets with it.
struct AnswerPiece {
  std::int32_t id = 0;
  std::string text{};
  std::optional<TokenLogprobs> logprobs{};
  std::vector<float> logits{};
  bool healed = false;  // it stands for a token of the prompt (token healing)
};

// The newest tokens of an answer with banned strings, which its reader has not got yet, and the
// tokens that have been taken back at each position.
//
// Invariant: a token that was given out is not here any more, and cannot be taken back.
class HeldAnswer {
 public:
  // The state of the answer's sampling behind a token.
  struct Place {
    SamplerState sampler;
    HealingProgress healing{};
  };
  explicit HeldAnswer(const Place& begin) : begin_(begin) {}

  void add(AnswerPiece piece, const Place& after);
  // Calls give(piece) for all but the newest `open` tokens, oldest first. `length`: tokens of the
  // text.
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

  // Takes back the newest `tokens` tokens, so that `length` tokens of the text stay. The first one
  // taken back is barred from its position. Returns the state behind the tokens that stay.
  Place take_back(std::size_t tokens, std::int64_t length);
  // Tokens that must not be chosen behind a text of `length` tokens.
  std::span<const std::int32_t> barred(std::int64_t length) const;
  // How often tokens were taken back since one was last given out.
  std::int64_t rewinds() const { return rewinds_; }
  // How often tokens were taken back since the answer began.
  std::int64_t all_rewinds() const { return all_rewinds_; }

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
  std::int64_t all_rewinds_ = 0;
};

}  // namespace bl
