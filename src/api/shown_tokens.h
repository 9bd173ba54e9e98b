#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/token_names.h"
#include "engine/engine.h"

namespace bl::openai {

// A token that an answer shows, and where it stands in the answer's text.
struct ShownToken {
  TokenLogprobs logprobs{};
  // The character at which it begins; for later bytes of a character, that character.
  std::size_t offset = 0;
};

// Finds where the tokens of one choice stand in its text, as they come. The result does not depend
// on how the engine cuts the choice into events.
//
// The prompt may end in the middle of a character, which the answer then completes. Tokens that
// token healing puts in place of the prompt's last ones are shown if they say more than those.
// Some decoders drop a space at the beginning of a text, which moves all offsets by one; so the
// first tokens wait until the text shows whether that has happened.
class ShownTokens {
 public:
  // `prompt`: the ids of the request's prompt. Both must outlive it.
  ShownTokens(const TokenNames& names, std::span<const std::int32_t> prompt)
      : names_(names), prompt_(prompt) {}

  // Return the tokens that can be shown now. The request must have asked for logprobs.
  std::vector<ShownToken> add(const Event& event);
  std::vector<ShownToken> add(const Answer& answer);  // a whole choice

 private:
  struct News {
    std::string_view text;
    std::span<const TokenLogprobs> healed;
    std::int64_t kept = 0;  // with `healed`
    std::span<const TokenLogprobs> tokens;
    bool is_last = false;
  };
  std::vector<ShownToken> add(const News& news);
  void begin(const News& news);
  void show(const TokenLogprobs& token, std::string_view said);
  std::size_t count(std::string_view bytes);
  std::vector<ShownToken> release(bool is_last);

  const TokenNames& names_;
  std::span<const std::int32_t> prompt_;
  bool begun_ = false;
  std::size_t known_ = 0;       // bytes of healed tokens to come that the prompt has too
  std::string open_;            // bytes of a character that is not complete
  std::size_t characters_ = 0;  // complete ones so far
  std::vector<ShownToken> waiting_;
  // Until it is known whether the text has lost its first space: the text, and what the tokens say.
  bool decided_ = false;
  bool lost_space_ = false;
  std::string text_;
  std::string said_;
};

}  // namespace bl::openai
