#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/open_request.h"
#include "engine/step_model.h"
#include "engine/token_tables.h"
#include "sample/constraint_compiler.h"

namespace bl {

// Prepares a request on the thread of whoever submits it, so that the engine's thread need not: the
// sets of tokens that parameters stand for, the strings that answers are searched for, a healed
// prompt, the second prompt of guidance, the constraint of each choice.
class RequestIntake {
 public:
  struct Limits {
    StepModel::Facts facts{};
    std::int64_t longest = 0;                // tokens of the longest sequence
    std::int64_t running = 0;                // sequences at once
    std::int64_t pages = 0;                  // of the cache
    std::vector<std::int32_t> end_tokens{};  // the model's
  };
  // The tokenizer may be null, and must outlive it.
  RequestIntake(const Tokenizer* tokenizer, const Limits& limits);

  // Completes `open`, whose request is checked and whose `longest` is set. Thread-safe. Throws
  // kInvalidArgument for a parameter that needs a tokenizer where there is none and for guidance
  // that does not fit, kUnsupported for parameters that exclude each other, and what
  // ConstraintCompiler::compile() throws.
  void complete(OpenRequest& open);
  // Completes parameters alone, which are validated, for a request that runs already.
  void complete(SamplingParams& params);

 private:
  void complete_lists(SamplingParams& params);
  void add_negative(OpenRequest& open) const;
  void add_constraints(OpenRequest& open);

  const Tokenizer* tokenizer_;
  Limits limits_;
  std::optional<TokenTables> tables_;
  std::unique_ptr<ConstraintCompiler> constraints_;
};

}  // namespace bl
