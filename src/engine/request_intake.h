#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/choice.h"
#include "engine/step_model.h"
#include "engine/token_tables.h"
#include "sample/constraint_compiler.h"

namespace bl {

// What is made of a request in the thread of who asks, so that the engine's thread has it ready:
// sets of tokens that parameters stand for, the texts that answers are watched for, a healed
// prompt, the second text of guidance, the constraint of each choice.
class RequestIntake {
 public:
  struct Limits {
    StepModel::Facts facts{};
    std::int64_t longest = 0;  // tokens of a sequence
    std::int64_t running = 0;  // sequences at once
    std::int64_t pages = 0;
    std::vector<std::int32_t> end_tokens{};  // the model's
  };
  // The tokenizer, if there is one, must outlive it.
  RequestIntake(const Tokenizer* tokenizer, const Limits& limits);

  // Completes `open`, whose request is checked and whose `longest` is set. Thread-safe. Throws
  // kInvalidArgument for what needs a tokenizer where there is none, for guidance that does not
  // fit, and what ConstraintCompiler::compile() throws.
  void complete(OpenRequest& open);

 private:
  void add_negative(OpenRequest& open) const;
  void add_constraints(OpenRequest& open);

  const Tokenizer* tokenizer_;
  Limits limits_;
  std::optional<TokenTables> tables_;
  std::unique_ptr<ConstraintCompiler> constraints_;
};

}  // namespace bl
