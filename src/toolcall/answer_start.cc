#include <algorithm>

#include "toolcall/answer_parser.h"

namespace bl {
namespace {

constexpr std::size_t kMinPromptPart = 4;  // shorter beginnings of a marker are chance

// The place behind the last of the markers in a text; npos if it has none.
std::size_t end_of_last(const std::vector<Pattern>& markers, std::string_view text) {
  std::size_t last = text.npos;
  for (const Pattern& marker : markers) {
    const std::string opening = marker.opening();
    const std::size_t at = opening.empty() ? text.npos : text.rfind(opening);
    if (at == text.npos) continue;
    const std::size_t end = at + opening.size();
    if (last == text.npos || end > last) last = end;
  }
  return last;
}

bool is_space_only(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

bool ends_in_reasoning(const AnswerFormat& format, std::string_view prompt, std::string_view tail) {
  const std::string_view text = tail.empty() ? prompt : tail;
  const std::size_t open = end_of_last(format.reasoning.open, text);
  if (open == text.npos) return false;
  const std::size_t close = end_of_last(format.reasoning.close, text);
  if (close != text.npos && close > open) return false;
  // Without knowing what belongs to the answer, only a marker at the very end opens reasoning.
  return !tail.empty() || is_space_only(text.substr(open));
}

}  // namespace

AnswerStart find_answer_start(const AnswerFormat& format, std::string_view prompt,
                              std::string_view tail) {
  AnswerStart start;
  start.in_reasoning = ends_in_reasoning(format, prompt, tail);
  if (start.in_reasoning) return start;
  if (!format.prompt.empty() && prompt.ends_with(format.prompt)) {
    start.prompt = format.prompt;
    return start;
  }
  for (const Pattern& marker : format.reasoning.open) {
    const std::string opening = marker.opening();
    for (std::size_t size = opening.size(); size-- > kMinPromptPart;) {
      if (!prompt.ends_with(std::string_view(opening).substr(0, size))) continue;
      start.prompt = opening.substr(0, size);
      return start;
    }
  }
  return start;
}

}  // namespace bl
