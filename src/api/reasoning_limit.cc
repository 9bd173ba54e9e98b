#include "api/reasoning_limit.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "api/token_names.h"
#include "text/tokenizer.h"

namespace bl::openai {
namespace {

constexpr std::size_t kMostTail = 256;  // bytes in which a marker is looked for

// Whether one of the markers ends in the last `fresh` bytes of a text.
bool has_marker(const std::vector<Pattern>& markers, const std::string& text, std::size_t fresh) {
  return std::any_of(markers.begin(), markers.end(), [&](const Pattern& marker) {
    const std::string opening = marker.opening();
    if (opening.empty() || opening.size() > text.size()) return false;
    const std::size_t from = text.size() - std::min(text.size(), fresh + opening.size() - 1);
    return text.find(opening, from) != text.npos;
  });
}

class ReasoningLimit {
 public:
  explicit ReasoningLimit(ReasoningLimitArgs args)
      : args_(std::move(args)), names_(args_.tokenizer), choices_(args_.choices) {
    const ReasoningSyntax& syntax = args_.reading->format.reasoning;
    forced_ = args_.tokenizer.encode(args_.budget.message + syntax.close.front().opening(),
                                     {.add_special = false});
  }

  std::int32_t next(const SampledToken& token) {
    Choice& choice = choices_.at(static_cast<std::size_t>(token.choice));
    // The text may have gone back to an earlier place.
    if (token.position != choice.position) {
      choice = {};
      choice.position = args_.prompt;
      start(choice);
      const auto answer = token.history.subspan(static_cast<std::size_t>(args_.prompt));
      for (const std::int32_t id : answer) advance(choice, id);
    }
    std::int32_t id = token.id;
    if (choice.phase == Phase::kInside && choice.tokens >= args_.budget.tokens) {
      choice.phase = Phase::kForcing;
    }
    if (choice.phase == Phase::kForcing) id = forced_[choice.forced];
    advance(choice, id);
    return id;
  }

 private:
  enum class Phase { kBefore, kInside, kForcing, kOver };
  struct Choice {
    std::int64_t position = -1;  // of the next token
    Phase phase = Phase::kBefore;
    std::int64_t tokens = 0;  // of reasoning
    std::size_t forced = 0;
    std::string tail;
  };

  void start(Choice& choice) const {
    const AnswerStart& start = args_.reading->options.start;
    if (start.in_reasoning) choice.phase = Phase::kInside;
    choice.tail = start.prompt;
  }

  void advance(Choice& choice, std::int32_t id) const {
    ++choice.position;
    if (choice.phase == Phase::kOver) return;
    if (choice.phase == Phase::kForcing) {
      if (++choice.forced == forced_.size()) choice.phase = Phase::kOver;
      return;
    }
    const std::string bytes = names_.bytes(id);
    choice.tail += bytes;
    const ReasoningSyntax& syntax = args_.reading->format.reasoning;
    if (choice.phase == Phase::kInside) {
      ++choice.tokens;
      if (has_marker(syntax.close, choice.tail, bytes.size())) choice.phase = Phase::kOver;
    } else if (has_marker(syntax.open, choice.tail, bytes.size())) {
      choice.phase = Phase::kInside;
    } else if (!syntax.anywhere && choice.tail.size() > kMostTail) {
      choice.phase = Phase::kOver;
    }
    if (choice.tail.size() > kMostTail) choice.tail.erase(0, choice.tail.size() - kMostTail);
  }

  ReasoningLimitArgs args_;
  TokenNames names_;
  std::vector<std::int32_t> forced_;
  std::vector<Choice> choices_;
};

}  // namespace

TokenHook limit_reasoning(ReasoningLimitArgs args) {
  const auto limit = std::make_shared<ReasoningLimit>(std::move(args));
  return [limit](const SampledToken& token) { return limit->next(token); };
}

}  // namespace bl::openai
