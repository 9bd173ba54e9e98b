#pragma once
#include <cstdint>
#include <string>

#include "base/json_fwd.h"

namespace bl::openai {

class UsageTotal;

// The members that an answer, or every chunk of a streamed answer, begins with.
struct AnswerHead {
  std::string id{};          // "chatcmpl-…", "cmpl-…"
  std::int64_t created = 0;  // Unix seconds
  std::string model{};
};

// {id, object, created, model, system_fingerprint}
Json head_json(const AnswerHead& head, const char* object);

// The members of a streamed chunk around its choice.
struct ChunkFrame {
  AnswerHead head{};
  const char* object = "";     // "chat.completion.chunk", "text_completion"
  bool include_usage = false;  // chunks have "usage", which is null in all but the last

  // A chunk with the news of one choice.
  Json chunk(Json choice) const;
  // The last chunk where the request asks for the usage; it has no choices.
  Json usage_chunk(const UsageTotal& usage) const;
};

}  // namespace bl::openai
