#pragma once
#include <cstdint>
#include <string>

#include "api/answer_head.h"
#include "base/json.h"

namespace bl::openai {

// One chunk of a streamed text completion: the news of one of its choices.
struct CompletionChunk {
  std::int64_t index = 0;  // of the choice, among those of all prompts
  std::string text{};
  Json logprobs{};                      // as Logprobs::completion() gives them, or null
  const char* finish_reason = nullptr;  // in the choice's last chunk
  Json stop_reason{};                   // with finish_reason

  Json json(const ChunkFrame& frame) const;
};

}  // namespace bl::openai
