#pragma once
#include <cstdint>

#include "engine/request.h"

namespace bl::server {

class ServedModel;

// Hears of every answer and embedding that the engine has finished for a request. The exchanges
// that ApiServer hands to routes are meters, so that routes need not know of metrics, logs and
// limits.
class AnswerMeter {
 public:
  AnswerMeter() = default;
  AnswerMeter(const AnswerMeter&) = delete;
  AnswerMeter& operator=(const AnswerMeter&) = delete;
  virtual ~AnswerMeter() = default;
  // `last` is the event of a choice that has `finish`. Any thread.
  virtual void on_answer(const ServedModel& model, const Event& last) = 0;
  // The engine has embedded texts with this many tokens in so many seconds. Any thread.
  virtual void on_embedding(const ServedModel& model, std::int64_t tokens, double seconds) = 0;
};

}  // namespace bl::server
