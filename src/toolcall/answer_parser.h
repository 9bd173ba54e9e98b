#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "toolcall/answer_event.h"
#include "toolcall/answer_format.h"
#include "toolcall/tool_set.h"

namespace bl {

// Where an answer begins, which the end of the prompt decides.
struct AnswerStart {
  bool in_reasoning = false;
  std::string prompt;  // the end of the prompt, if a marker begins in it and ends in the answer
};

// `prompt` is the rendered prompt, `tail` the part of it that add_generation_prompt adds (empty if
// that is not known).
AnswerStart find_answer_start(const AnswerFormat& format, std::string_view prompt,
                              std::string_view tail);

struct AnswerOptions {
  AnswerStart start;
  bool separate_reasoning = true;  // otherwise reasoning is content, markers included
  bool read_calls = true;          // otherwise every call is content
};

// Reads what a model answers, while it is generated: content, reasoning and calls of tools.
//
// It never fails. Text that is no call is content; a call that has begun and goes wrong ends as
// incomplete. What events say in sum does not depend on where the text is cut. Time is linear in
// the text, and memory in what is not certain yet.
class AnswerParser {
 public:
  // `format` and `tools` must outlive the parser. Without tools no call is read.
  AnswerParser(const AnswerFormat& format, const ToolSet& tools, AnswerOptions options);
  AnswerParser(AnswerParser&& other) noexcept;
  AnswerParser& operator=(AnswerParser&& other) noexcept;
  ~AnswerParser();

  // Reads the next piece, which may be cut anywhere, inside a character too. Bytes that are not
  // UTF-8 become U+FFFD. Returns what has become certain.
  std::vector<AnswerEvent> feed(std::string_view text);
  // The answer has ended. Returns the rest.
  std::vector<AnswerEvent> finish();

 private:
  class Machine;
  std::unique_ptr<Machine> machine_;
};

// Reads a whole answer.
struct ParsedCall {
  std::string name;
  std::string id;
  std::string arguments;
  bool complete = false;
};
struct ParsedAnswer {
  std::string content;
  std::string reasoning;
  std::vector<ParsedCall> calls;

  void add(const std::vector<AnswerEvent>& events);
};

}  // namespace bl
