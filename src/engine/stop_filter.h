#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text_matcher.h"

namespace bl {

// Lets generated text through up to the first stop string, holding back only what may still become
// one. The stop string that is completed first counts; of those that end together, the longest.
class StopFilter {
 public:
  // Null: everything passes.
  explicit StopFilter(std::shared_ptr<const TextMatcher> stops) : stops_(std::move(stops)) {}
  // Throws kInvalidArgument for an empty stop string.
  explicit StopFilter(const std::vector<std::string>& stops)
      : StopFilter(std::make_shared<TextMatcher>(stops)) {}

  // Takes the next text and returns what is certain to come before any stop string.
  std::string push(std::string_view text);
  // Whether a stop string has been completed; nothing comes out after it.
  bool stopped() const { return stopped_; }
  // Where in the last text it was completed: bytes before its end.
  std::size_t stopped_at() const { return stopped_at_; }
  // Which stop string it was; empty while there was none.
  std::string stop_string() const;
  // That stop string and what came behind it with the same push(); empty while there was none.
  const std::string& withheld() const { return withheld_; }
  // The end of generation: what was held back, unless a stop string was completed.
  std::string finish();

  // What is held back, as a value: for text that is taken back. Not once it has stopped.
  TextMatcher::State mark() const { return state_; }
  void restore(TextMatcher::State mark) {
    state_ = mark;
    stopped_ = false;
    withheld_.clear();
  }

 private:
  std::shared_ptr<const TextMatcher> stops_;
  TextMatcher::State state_ = 0;
  bool stopped_ = false;
  std::size_t stopped_at_ = 0;
  std::string withheld_;
};

}  // namespace bl
