#include "api/finish.h"

#include <algorithm>
#include <string_view>

#include "api/chat_turn.h"
#include "base/json.h"

namespace bl::openai {

const char* finish_reason(FinishReason reason) {
  const bool is_full = reason == FinishReason::kMaxTokens || reason == FinishReason::kContext;
  return is_full ? "length" : "stop";
}

const char* finish_reason(FinishReason reason, const ChoiceReader& reader) {
  const char* plain = finish_reason(reason);
  const bool has_called = reader.has_calls() && reader.calls_complete();
  return has_called && plain == std::string_view("stop") ? "tool_calls" : plain;
}

Json stop_reason(const ChoiceEnd& end, std::span<const std::int32_t> own) {
  if (end.reason == FinishReason::kStopString) return end.stop_string;
  if (!end.end_token) return nullptr;
  const std::int32_t id = end.end_token->id;
  return std::find(own.begin(), own.end(), id) == own.end() ? Json() : Json(id);
}

}  // namespace bl::openai
