// Any text as the answer in any format: the first byte chooses the format, the second how the
// answer begins and is read, and the rest is the text. It is read whole and in pieces, which must
// agree.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "toolcall/answer_parser.h"
#include "toolcall/bare_value.h"

namespace {

const bl::ToolSet& tools() {
  static const bl::ToolSet set(bl::parse_json(
      R"([{"name": "f", "parameters": {"type": "object", "properties": {"s": {"type": "string"},)"
      R"( "n": {"type": "integer"}, "l": {"type": "array"}, "o": {"type": "object"}},)"
      R"( "required": ["s"]}}, {"name": "g"}])",
      "tools"));
  return set;
}

std::vector<bl::AnswerEvent> joined(std::vector<bl::AnswerEvent> all,
                                    std::vector<bl::AnswerEvent> more) {
  for (bl::AnswerEvent& event : more) {
    const bool begins = event.kind == bl::AnswerEvent::Kind::kCallBegin ||
                        event.kind == bl::AnswerEvent::Kind::kCallEnd;
    if (!begins && !all.empty() && all.back().kind == event.kind && all.back().call == event.call) {
      all.back().text += event.text;
    } else {
      all.push_back(std::move(event));
    }
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static const std::vector<bl::FormatDocument>& documents = bl::format_documents();
  const bl::AnswerFormat& format = documents[data[0] % documents.size()].format;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  bl::AnswerOptions options;
  options.start.in_reasoning = (data[1] & 1) != 0;
  options.separate_reasoning = (data[1] & 2) == 0;
  if ((data[1] & 4) != 0) options.start.prompt = format.prompt;

  bl::AnswerParser whole(format, tools(), options);
  std::vector<bl::AnswerEvent> events = joined({}, whole.feed(text));
  events = joined(std::move(events), whole.finish());

  bl::AnswerParser cut(format, tools(), options);
  std::vector<bl::AnswerEvent> pieces;
  std::uint32_t state = data[1] | 1u;
  for (std::size_t at = 0; at < text.size();) {
    state = state * 1664525u + 1013904223u;
    const std::size_t count = 1 + (state >> 24) % 9;
    pieces = joined(std::move(pieces), cut.feed(text.substr(at, count)));
    at += count;
  }
  pieces = joined(std::move(pieces), cut.finish());
  if (pieces != events) __builtin_trap();

  bl::ParsedAnswer answer;
  answer.add(events);
  for (const bl::ParsedCall& call : answer.calls) {
    if (call.complete != bl::is_whole_json(call.arguments)) __builtin_trap();
  }
  return 0;
}
