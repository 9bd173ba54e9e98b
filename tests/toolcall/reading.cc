#include "reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace bl::test {
namespace {

void append(std::vector<AnswerEvent>& all, std::vector<AnswerEvent> more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

std::vector<AnswerEvent> joined(const std::vector<AnswerEvent>& events) {
  std::vector<AnswerEvent> all;
  for (const AnswerEvent& event : events) {
    const bool text = event.kind == AnswerEvent::Kind::kContent ||
                      event.kind == AnswerEvent::Kind::kReasoning ||
                      event.kind == AnswerEvent::Kind::kArguments;
    if (text && !all.empty() && all.back().kind == event.kind && all.back().call == event.call) {
      all.back().text += event.text;
    } else {
      all.push_back(event);
    }
  }
  return all;
}

std::vector<AnswerEvent> read_whole(AnswerParser parser, std::string_view text) {
  std::vector<AnswerEvent> events = parser.feed(text);
  append(events, parser.finish());
  return joined(events);
}

std::vector<AnswerEvent> read_bytes(AnswerParser parser, std::string_view text) {
  std::vector<AnswerEvent> events;
  for (const char& byte : text) append(events, parser.feed({&byte, 1}));
  append(events, parser.finish());
  return joined(events);
}

std::vector<AnswerEvent> read_pieces(AnswerParser parser, std::string_view text,
                                     std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<AnswerEvent> events;
  while (!text.empty()) {
    const std::size_t size = std::min<std::size_t>(text.size(), 1 + random() % 12);
    append(events, parser.feed(text.substr(0, size)));
    text.remove_prefix(size);
  }
  append(events, parser.finish());
  return joined(events);
}

ParsedAnswer parsed(const std::vector<AnswerEvent>& events) {
  ParsedAnswer answer;
  answer.add(events);
  return answer;
}

std::string shown(const std::vector<AnswerEvent>& events) {
  std::string text;
  for (const AnswerEvent& event : events) {
    constexpr const char* kKinds[] = {"content", "reasoning", "call", "arguments", "end"};
    text += fmt::format("{} {} {}{}{}\n", kKinds[static_cast<int>(event.kind)], event.call,
                        event.name, event.text, event.complete ? "complete" : "");
  }
  return text;
}

}  // namespace bl::test
