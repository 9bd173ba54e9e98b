#include "api/completion_chunk.h"

#include <utility>

namespace bl::openai {

Json CompletionChunk::json(const ChunkFrame& frame) const {
  Json choice{{"index", index}, {"text", text}, {"logprobs", logprobs}, {"finish_reason", nullptr}};
  if (finish_reason != nullptr) {
    choice["finish_reason"] = finish_reason;
    choice["stop_reason"] = stop_reason;
  }
  return frame.chunk(std::move(choice));
}

}  // namespace bl::openai
