#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/json_fwd.h"
#include "engine/request.h"

namespace bl::openai {

class ChoiceReader;

// "finish_reason" of a choice that has ended without an error: "stop" or "length".
const char* finish_reason(FinishReason reason);
// "finish_reason" of a choice of a chat, which is "tool_calls" where it ended by itself and has
// called tools.
const char* finish_reason(FinishReason reason, const ChoiceReader& reader);

// How a choice has ended, as its last event says.
struct ChoiceEnd {
  FinishReason reason = FinishReason::kCancelled;
  const std::string& stop_string;
  const std::optional<EndToken>& end_token;
};
// "stop_reason", as in vLLM's answers: the stop string, or the id of an end token that the request
// has named itself (`own`); null for the model's own end tokens and for everything else.
Json stop_reason(const ChoiceEnd& end, std::span<const std::int32_t> own);

}  // namespace bl::openai
