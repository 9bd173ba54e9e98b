#include "engine/choice_closer.h"

#include <new>
#include <utility>

#include "engine/event_stream.h"

namespace bl {

void ChoiceCloser::fail_with(Choice& choice, const Error& error) noexcept {
  Ending ending{FinishReason::kError, error.code()};
  try {
    ending.error = error.what();
  } catch (const std::bad_alloc&) {
    ending.code = ErrorCode::kOutOfMemory;
    ending.error = EventStream::kNoMemory;
  }
  finish(choice, std::move(ending));
}

void ChoiceCloser::finish(Choice& choice, Ending ending) noexcept {
  if (choice.is_over()) return;
  choice.end(EngineClock::now());
  ahead_.drop(choice);
  // What a failed step has written into the pages is not known.
  const bool is_whole = ending.reason != FinishReason::kError;
  choice.each_sequence([&](ScheduledSequence& sequence) {
    if (is_whole) sequence.publish(cache_, true);
    sequence.release(cache_);
  });
  RequestAnswers& answers = choice.answers();
  if (choice.index() == 0) answers.stop_waiting();
  choice.tell_end(std::move(ending));
  choices_.count_ended(answers.end_one(choice.meter().usage()));
}

}  // namespace bl
