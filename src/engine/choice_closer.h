#pragma once
#include <exception>

#include "base/error.h"
#include "cache/prefix_cache.h"
#include "engine/caught_error.h"
#include "engine/choice.h"
#include "engine/choice_list.h"
#include "engine/ending.h"
#include "engine/step_ahead.h"

namespace bl {

// Ends answers, and turns what is thrown while one is worked on into its end.
//
// Invariant: an answer ends once; then its pages are given back, its siblings no longer wait for
// it, and its reader has got a last event, whatever fails meanwhile.
class ChoiceCloser {
 public:
  ChoiceCloser(ChoiceList& choices, PrefixCache& cache, StepAhead& ahead)
      : choices_(choices), cache_(cache), ahead_(ahead) {}

  // Does nothing where the answer is over already.
  void finish(Choice& choice, Ending ending) noexcept;
  // The answer ends with an error that work on it has led to.
  void fail_with(Choice& choice, const Error& error) noexcept;
  // Does a part of the work on an answer. False where that threw: then the answer has ended.
  template <class Work>
  bool attempt(Choice& choice, Work&& work) noexcept {
    try {
      work();
      return true;
    } catch (const std::exception&) {
      fail_with(choice, caught_error());
      return false;
    }
  }

 private:
  ChoiceList& choices_;
  PrefixCache& cache_;
  StepAhead& ahead_;
};

}  // namespace bl
