#pragma once
#include <map>
#include <string>

#include "base/json.h"

namespace bl::test {

// A client of a streamed answer that joins its chunks. It is as strict as the strictest clients:
// anything that OpenAI's API does not have fails the test.
class ChunkReader {
 public:
  enum class Kind { kChat, kCompletion };
  ChunkReader(Kind kind, bool include_usage) : kind_(kind), include_usage_(include_usage) {}

  void add(const Json& chunk);
  // To be called after the last chunk.
  void finish() const;
  // Returns the choices as the whole answer has them.
  Json choices() const;
  // The usage in the last chunk; null where there is none.
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
