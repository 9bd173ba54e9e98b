#pragma once
#include <cstdint>
#include <string>

#include "base/json_fwd.h"

namespace bl::openai {

class UsageTotal;

// What an answer begins with, and every chunk of a streamed one.
struct AnswerHead {
  std::string id{};          // "chatcmpl-…", "cmpl-…"
  std::int64_t created = 0;  // Unix seconds
  std::string model{};
};

// {id, object, created, model}
Json head_json(const AnswerHead& head, const char* object);

// What stands around the choice of a streamed chunk.
struct ChunkFrame {
  AnswerHead head{};
  const char* object = "";     // "chat.completion.chunk", "text_completion"
  bool include_usage = false;  // of the request: chunks have "usage", which is null but in the last

  // A chunk with news of one choice.
  Json chunk(Json choice) const;
  // The last chunk of a request that asks for the usage: no choices, and what they took.
  Json usage_chunk(const UsageTotal& usage) const;
};

}  // namespace bl::openai
