#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "toolcall/answer_event.h"

namespace bl::ollama {

enum class Route { kChat, kGenerate };

struct AnswerHead {
  Route route = Route::kChat;
  std::string model;                    // as the request names it
  std::int64_t load_nanoseconds = 0;    // until the model was ready and the prompt encoded
  std::function<std::int64_t()> clock;  // nanoseconds since 1970
};

// Turns the reading of an answer into the lines of a stream of /api/chat or /api/generate.
class AnswerLines {
 public:
  // `prompt`: the ids that the answer follows, for the "context" of the last line; empty: it has
  // none.
  AnswerLines(AnswerHead head, std::vector<std::int32_t> prompt)
      : head_(std::move(head)), context_(std::move(prompt)), has_context_(!context_.empty()) {}

  // Returns the lines that follow from an event of the engine and what it adds to the reading. The
  // last one has done, done_reason, counts and durations. A call is part of the line in which it
  // has ended, with whole arguments.
  std::vector<Json> push(const Event& event, const std::vector<AnswerEvent>& news);
  // A line that adds nothing, which keeps a connection open.
  Json empty_line() const { return line("", false); }

 private:
  Json line(std::string content, bool done) const;
  Json last_line(const Event& event) const;

  AnswerHead head_;
  std::vector<std::int32_t> context_;
  bool has_context_;
  Json call_;  // the one that is open
  std::string arguments_;
  int calls_ = 0;
};

// The answer to a request that only loads a model ("load") or unloads it ("unload").
Json loaded(const AnswerHead& head, const char* done_reason);

// Puts the answer that is not streamed together from the lines of the stream.
class WholeAnswer {
 public:
  void add(const Json& line);
  const Json& answer() const { return answer_; }

 private:
  Json answer_;
};

}  // namespace bl::ollama
