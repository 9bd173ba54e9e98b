#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"
#include "fake_model.h"

namespace bl::test {

// What a request should get, computed from its definition: the whole text read again at every
// token, without any of the engine's data structures. For a FakeModel that gives logits, and tokens
// that each say whole ASCII characters.
class AnswerOracle {
 public:
  AnswerOracle(const FakeModel& model, std::vector<std::string> pieces)
      : model_(model), pieces_(std::move(pieces)) {}

  struct Answer {
    std::vector<std::int32_t> ids{};
    std::vector<std::int32_t> healed{};
    std::string text{};
    std::int64_t rewinds = 0;
    std::vector<WithheldText> suppressed{};  // one a rewind
    FinishReason reason = FinishReason::kMaxTokens;
  };
  // Knows banned strings, stop strings and tokens, token healing, guidance (by
  // Request::negative_prompt), adapters, all samplers, and of constraints the regular expression
  // "[abc]{n}": so many of these letters. Tokens that end answers: of healed or constrained ones,
  // it knows none.
  Answer answer(const Request& request, std::int32_t index = 0) const;

 private:
  struct Writing;
  std::vector<std::int32_t> outside(const ConstraintSpec& constraint, std::size_t said) const;
  std::size_t removed(const std::vector<std::int32_t>& prompt) const;
  void watch(Writing& writing) const;

  const FakeModel& model_;
  std::vector<std::string> pieces_;
};

}  // namespace bl::test
