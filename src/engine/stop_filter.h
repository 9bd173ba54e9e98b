#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace bl {

// Lets generated text through up to the first stop string, holding back only what may still become
// one.
class StopFilter {
 public:
  // Throws kInvalidArgument for an empty stop string.
  explicit StopFilter(std::vector<std::string> stops);

  // Takes the next text and returns what is certain to come before any stop string.
  std::string push(std::string_view text);
  // Whether a stop string has been completed; nothing comes out after it.
  bool stopped() const { return stopped_; }
  // The end of generation: what was held back, unless a stop string was completed.
  std::string finish();

 private:
  std::size_t held_length() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace bl
