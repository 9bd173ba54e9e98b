#include "base/check.h"
#include "toolcall/answer_parser.h"

namespace bl {

void ParsedAnswer::add(const std::vector<AnswerEvent>& events) {
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case AnswerEvent::Kind::kContent:
        content += event.text;
        break;
      case AnswerEvent::Kind::kReasoning:
        reasoning += event.text;
        break;
      case AnswerEvent::Kind::kCallBegin:
        calls.push_back({event.name, event.id, {}, false});
        break;
      case AnswerEvent::Kind::kArguments:
        BL_CHECK(event.call + 1 == static_cast<int>(calls.size()));
        calls.back().arguments += event.text;
        break;
      case AnswerEvent::Kind::kCallEnd:
        calls.back().complete = event.complete;
        break;
    }
  }
}

}  // namespace bl
