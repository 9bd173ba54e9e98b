#include "engine/usage_meter.h"

#include "ops/kv_layout.h"

namespace bl {

UsageMeter::UsageMeter(EngineClock::time_point submitted, std::int64_t prompt_tokens)
    : submitted_(submitted) {
  usage_.prompt_tokens = prompt_tokens;
}

void UsageMeter::admit(EngineClock::time_point now, std::int64_t cached) {
  admitted_ = now;
  usage_.queue_seconds = seconds_between(submitted_, now);
  usage_.cached_tokens = cached;
  usage_.cached_pages = cached / kPageSlots;
}

void UsageMeter::find(std::int64_t tokens) {
  usage_.cached_tokens += tokens;
  usage_.cached_pages += tokens / kPageSlots;
}

void UsageMeter::finish_prompt(EngineClock::time_point now) {
  first_token_ = now;
  usage_.prefill_seconds = seconds_between(*admitted_, now);
}

void UsageMeter::begin_round(std::int64_t guesses, bool record) {
  usage_.drafted_tokens += guesses;
  records_ = record;
  if (record) rounds_.push_back({static_cast<std::int32_t>(guesses), 0});
}

void UsageMeter::accept_guess() {
  ++usage_.accepted_tokens;
  if (records_) ++rounds_.back().accepted;
}

void UsageMeter::finish(EngineClock::time_point now, std::int64_t generated) {
  usage_.generated_tokens = generated;
  if (first_token_) {
    usage_.decode_seconds = seconds_between(*first_token_, now);
  } else if (admitted_) {
    usage_.prefill_seconds = seconds_between(*admitted_, now);
  } else {
    usage_.queue_seconds = seconds_between(submitted_, now);
  }
}

}  // namespace bl
