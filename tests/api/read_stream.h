#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "api/chat_stream.h"

namespace bl::test {

// A streamed chat of which all text is content, for tests of the chunks alone.
class ReadStream {
 public:
  ReadStream(openai::AnswerHead head, const openai::ChatRequest& request,
             std::vector<std::int32_t> prompt, const openai::Logprobs& logprobs)
      : chunks_(std::move(head), request, std::move(prompt), logprobs) {
    const auto reading = std::make_shared<openai::ChatReading>();
    for (std::int64_t i = 0; i < request.sampling.n; ++i) readers_.emplace_back(reading);
  }
  std::vector<Json> push(const Event& event) {
    openai::ChoiceReader& reader = readers_[static_cast<std::size_t>(event.choice)];
    const std::vector<AnswerEvent> news = reader.push(event);
    return chunks_.push(event, news, reader);
  }
  std::optional<Json> usage_chunk() const { return chunks_.usage_chunk(); }

 private:
  openai::ChatStream chunks_;
  std::vector<openai::ChoiceReader> readers_;
};

}  // namespace bl::test
