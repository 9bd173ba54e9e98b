#pragma once
#include <cstdint>
#include <string>

#include "engine/request.h"
#include "engine/stop_filter.h"
#include "text/text_stream.h"

namespace bl {

// Generated tokens on their way to text: decoded, and held back where a stop string may begin.
class AnswerText {
 public:
  // The tokenizer must outlive it. Throws kInvalidArgument for an empty stop string.
  AnswerText(const Tokenizer& tokenizer, const Request& request);

  // What is certain now.
  std::string push(std::int32_t id) { return filter_.push(stream_.push(id)); }
  // The rest, at the end of the answer.
  std::string finish();
  bool stopped() const { return filter_.stopped(); }

 private:
  TextStream stream_;
  StopFilter filter_;
};

}  // namespace bl
