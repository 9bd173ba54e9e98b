#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/answer_head.h"
#include "base/json.h"

namespace bl::openai {

// The news of one tool call in a chunk. The first one has the call's id and name; joined, all of
// them give its arguments, the text of a JSON object.
struct ToolCallDelta {
  std::int32_t index = 0;  // of the call, among those of its choice
  std::string id{};        // empty in all but the first
  std::string name{};
  std::string arguments{};
};

// One chunk of a streamed chat answer: the news of one of its choices.
struct ChatChunk {
  std::int32_t index = 0;  // of the choice
  bool has_role = false;   // the choice's first chunk
  std::optional<std::string> content{};
  std::optional<std::string> reasoning{};
  std::vector<ToolCallDelta> tool_calls{};
  Json logprobs{};                      // as Logprobs::chat() gives them, or null
  const char* finish_reason = nullptr;  // in the choice's last chunk
  Json stop_reason{};                   // with finish_reason

  Json json(const ChunkFrame& frame) const;
};

}  // namespace bl::openai
