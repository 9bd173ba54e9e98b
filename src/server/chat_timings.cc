#include "server/chat_timings.h"

#include <algorithm>

#include "server/llama_reply.h"

namespace bl::server {

ChatTimings::ChatTimings(std::int64_t prompt_tokens, bool per_token) : per_token_(per_token) {
  usage_.prompt_tokens = prompt_tokens;
}

void ChatTimings::add(const Event& event) {
  const Clock::time_point now = Clock::now();
  const auto since = [now](Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  usage_.generated_tokens += static_cast<std::int64_t>(event.ids.size());
  if (!event.ids.empty() && !first_token_) {
    first_token_ = now;
    usage_.prefill_seconds = since(start_);
  }
  if (first_token_ && !event.finish) usage_.decode_seconds = since(*first_token_);
  if (!event.finish) return;
  // The engine has measured exactly what was only watched from here.
  if (event.choice == 0) {
    usage_.cached_tokens = event.usage.cached_tokens;
    usage_.prefill_seconds = event.usage.prefill_seconds;
    usage_.decode_seconds = event.usage.decode_seconds;
  }
  usage_.decode_seconds = std::max(usage_.decode_seconds, event.usage.decode_seconds);
  usage_.drafted_tokens += event.usage.drafted_tokens;
  usage_.accepted_tokens += event.usage.accepted_tokens;
}

Json ChatTimings::json() const { return Json(llama_timings(usage_)); }

}  // namespace bl::server
