#pragma once
#include "engine/request.h"

namespace bl::server {

class ServedModel;

// Hears of every answer that the engine has finished for a request. The exchanges that ApiServer
// hands to routes are meters, so that routes need not know of metrics, logs and limits.
class AnswerMeter {
 public:
  AnswerMeter() = default;
  AnswerMeter(const AnswerMeter&) = delete;
  AnswerMeter& operator=(const AnswerMeter&) = delete;
  virtual ~AnswerMeter() = default;
  // `last` is the event of a choice that has `finish`. Any thread.
  virtual void on_answer(const ServedModel& model, const Event& last) = 0;
};

}  // namespace bl::server
