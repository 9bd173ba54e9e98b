#include "engine/request.h"

namespace bl {

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndToken:
      return "end token";
    case FinishReason::kStopString:
      return "stop string";
    case FinishReason::kConstraint:
      return "constraint satisfied";
    case FinishReason::kMaxTokens:
      return "token limit";
    case FinishReason::kContext:
      return "context full";
    case FinishReason::kLoop:
      return "repeats itself";
    case FinishReason::kCancelled:
      return "stopped";
    case FinishReason::kDeadline:
      return "deadline passed";
    case FinishReason::kError:
      return "error";
  }
  return "?";
}

double Usage::prefill_rate() const {
  return prefill_seconds > 0 ? static_cast<double>(prefill_tokens) / prefill_seconds : 0;
}

double Usage::decode_rate() const {
  const auto steps = static_cast<double>(generated_tokens - 1);
  return decode_seconds > 0 && steps > 0 ? steps / decode_seconds : 0;
}

}  // namespace bl
