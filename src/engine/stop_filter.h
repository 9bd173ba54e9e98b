#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text_matcher.h"

namespace bl {

// Passes generated text on up to the first stop string, and holds back only what may still become
// one. The stop string that is completed first counts; of those that end together, the longest.
class StopFilter {
 public:
  // `stops`: null where everything passes.
  explicit StopFilter(std::shared_ptr<const TextMatcher> stops) : stops_(std::move(stops)) {}
  // Throws kInvalidArgument for an empty stop string.
  explicit StopFilter(const std::vector<std::string>& stops)
      : StopFilter(std::make_shared<TextMatcher>(stops)) {}

  // Adds text. Returns what is certain to come before any stop string.
  std::string push(std::string_view text);
  // Whether a stop string is complete; no text is returned after it.
  bool stopped() const { return stopped_; }
  // Bytes of the last text up to the end of the stop string.
  std::size_t stopped_at() const { return stopped_at_; }
  // The stop string; empty where there was none.
  std::string stop_string() const;
  // The stop string, and the text behind it in the same push(); empty where there was none.
  const std::string& withheld() const { return withheld_; }
  // Call at the end of generation: returns what was held back, unless a stop string was completed.
  std::string finish();

  // The state, for text that is taken back later. Must not be called once it has stopped.
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
