#pragma once
#include <map>
#include <string>

#include "base/json.h"

namespace bl::test {

// A client of a streamed answer that puts its chunks together again, and is as strict about them as
// the strictest clients: what OpenAI's API does not have is a failure of the test.
class ChunkReader {
 public:
  enum class Kind { kChat, kCompletion };
  ChunkReader(Kind kind, bool include_usage) : kind_(kind), include_usage_(include_usage) {}

  void add(const Json& chunk);
  // Call it behind the last chunk.
  void finish() const;
  // The choices as the whole answer has them.
  Json choices() const;
  // What the last chunk says; null without one.
  const Json& usage() const { return usage_; }

 private:
  struct Choice {
    bool begun = false;
    std::string text;
    Json logprobs;  // null: none
    Json finish_reason;
    Json stop_reason;
  };
  void add_head(const Json& chunk);
  void add_choice(const Json& choice);
  void add_delta(const Json& delta, Choice& choice) const;

  Kind kind_;
  bool include_usage_;
  Json head_;
  Json usage_;
  std::map<int, Choice> choices_;
};

}  // namespace bl::test
