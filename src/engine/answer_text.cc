#include "engine/answer_text.h"

#include <algorithm>

namespace bl {

AnswerText::AnswerText(const Tokenizer& tokenizer, const Request& request)
    : stream_(tokenizer, request.skip_special), filter_(request.sampling.stop_strings) {
  if (!request.continues_prompt) return;
  // Decoders treat the beginning of a text differently; beyond that they look back no further than
  // one character's bytes.
  constexpr std::size_t kLookBack = 16;
  const std::size_t size = request.prompt.size();
  for (std::size_t i = size - std::min(size, kLookBack); i < size; ++i) {
    stream_.push(request.prompt[i]);
  }
}

std::string AnswerText::finish() {
  if (filter_.stopped()) return {};
  std::string rest = filter_.push(stream_.finish());
  if (!filter_.stopped()) rest += filter_.finish();
  return rest;
}

}  // namespace bl
