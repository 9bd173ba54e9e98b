#pragma once
#include <cstdint>
#include <string>

namespace bl {

// One step in reading an answer.
struct AnswerEvent {
  enum class Kind : std::uint8_t {
    kContent,    // `text` follows in the content
    kReasoning,  // `text` follows in the reasoning
    kCallBegin,  // call number `call` begins, of the tool `name`
    kArguments,  // `text` follows in the arguments of `call`, which are JSON text
    kCallEnd,    // `call` is over; its arguments are whole JSON if `complete`
  };
  Kind kind = Kind::kContent;
  int call = 0;
  std::string text = {};
  std::string name = {};
  std::string id = {};  // what the model wrote as the call's id; empty where it wrote none
  bool complete = false;

  bool operator==(const AnswerEvent&) const = default;
};

}  // namespace bl
