#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/answer_head.h"
#include "base/json.h"

namespace bl::openai {

// What a chunk says of one tool call. The first of a call has its id and name, and all of them
// together its arguments, which are JSON in a text.
struct ToolCallDelta {
  std::int32_t index = 0;  // of the call, among those of its choice
  std::string id{};        // empty behind the first
  std::string name{};
  std::string arguments{};
};

// One chunk of a streamed chat answer: what is new about one of its choices.
struct ChatChunk {
  std::int32_t index = 0;  // of the choice
  bool has_role = false;   // the choice's first chunk
  std::optional<std::string> content{};
  std::vector<ToolCallDelta> tool_calls{};
  Json logprobs{};                      // as Logprobs::chat() gives them, or null
  const char* finish_reason = nullptr;  // in the choice's last chunk
  Json stop_reason{};                   // with finish_reason

  Json json(const ChunkFrame& frame) const;
};

}  // namespace bl::openai
