#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "cache/prefix_cache.h"
#include "engine/choice.h"
#include "engine/request.h"

namespace bl {

struct Ending {
  FinishReason reason;
  ErrorCode code = ErrorCode::kInvalidArgument;  // with kError
  std::string error{};
};

struct AcceptArgs {
  std::int32_t id = 0;
  TokenLogprobs* logprobs = nullptr;  // taken, where there are some
  std::span<const float> logits{};    // kept, where the request wants them
  bool is_end = false;                // an end token
  bool satisfied = false;             // the constraint is, and nothing can follow
};

// A chosen token becomes part of an answer: its text goes to the reader, or waits while a banned
// string may come of it, or the answer goes back to before one. Returns how the answer ends if it
// does.
std::optional<Ending> accept_token(Choice& choice, PrefixCache& cache, AcceptArgs args);

// Before the first token: how its text is made.
void start_text(Choice& choice, const Tokenizer& tokenizer);

// What the last event of an answer says about its text: the rest of it, which stop string or end
// token ended it, what is withheld. `last.finish` is set; `tokenizer` may be null.
void tell_rest(Choice& choice, const Tokenizer* tokenizer, Event& last);

// Gives the reader what still waited for what follows.
void give_held(Choice& choice);

}  // namespace bl
