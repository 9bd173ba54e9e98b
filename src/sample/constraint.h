#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "sample/constraint_spec.h"
#include "sample/grammar_library.h"

namespace bl {

// A compiled constraint, as requests share it.
struct CompiledConstraint {
  struct Part {
    std::shared_ptr<const CompiledGrammar> grammar{};
    std::int32_t trigger_token = -1;  // ConstraintSpec::trigger_token
  };
  std::vector<Part> parts{};  // that hold together
  std::size_t vocab = 0;      // tokens that the grammars know
  bool prefer_end = false;    // ConstraintSpec::prefer_end of one of them
  ConstraintLimits limits{};
};

// Where one answer stands in its constraint: which tokens may follow. Tokens that end an answer may
// follow exactly where the text so far is whole, and alone there with prefer_end; special tokens
// never do. Of several grammars that hold together, every one must take a token; where each has
// some and they have none in common, the constraint cannot be satisfied.
//
// The next mask is computed by prepare(), on whatever thread, so that it can be made while the
// model runs; mask() does it where nobody did. One thread at a time. A grammar so ambiguous that a
// token costs more than the limits say throws kLimit; the constraint is then of no more use.
class Constraint {
 public:
  // `end_tokens` end the answer: the model's and the request's own.
  Constraint(CompiledConstraint compiled, std::vector<std::int32_t> end_tokens);

  // Computes the mask of the next token. What goes wrong is thrown by mask().
  void prepare();
  // [words] bits of the tokens that may follow (PickArgs::mask). `ends_come`: an end token may be
  // chosen; where the answer is too short for one, prefer_end does not hold. Throws
  // kInvalidArgument where the text is not whole and no token can follow, which a vocabulary
  // without the needed bytes leads to.
  std::span<const std::uint32_t> mask(bool ends_come = true);
  // Whether mask() has this token.
  bool allows(std::int32_t token);

  // `token` has been chosen. Throws kInvalidArgument, and nothing has changed, where it may not
  // follow. After an end token only rollback() may be called.
  void accept(std::int32_t token);
  // Takes the newest `tokens` back.
  void rollback(std::int64_t tokens);

  std::int64_t accepted() const { return accepted_; }  // tokens
  // The text so far satisfies the constraint.
  bool complete() const;
  // It does, and only end tokens can follow: the answer is over without one of them.
  bool finished(bool ends_come = true);

 private:
  // One grammar of those that hold together.
  struct Part {
    // Before the trigger token, where there is one.
    bool is_free() const { return trigger_token >= 0 && !trigger_at; }
    std::unique_ptr<GrammarWalk> walk;
    std::int32_t trigger_token = -1;
    std::optional<std::int64_t> trigger_at{};  // how many had been accepted with the trigger
  };

  void compute();
  void fill_text();
  bool accept_text(std::int32_t token);
  template <class F>
  void work(const F& body);
  void set_ends(bool allowed);
  bool prefers_end() const;

  CompiledConstraint compiled_;
  std::vector<std::int32_t> end_tokens_;  // sorted
  std::vector<Part> parts_;
  std::vector<std::uint32_t> words_;
  std::vector<std::uint32_t> end_words_;   // the same of end tokens alone
  std::vector<std::uint32_t> part_words_;  // of one part, beside others
  std::optional<Error> error_;
  std::int64_t accepted_ = 0;  // tokens
  bool prepared_ = false;
  bool any_text_ = false;          // some token that is no end may follow
  std::int64_t ended_ = 0;         // end tokens accepted
  std::vector<std::size_t> kept_;  // bytes that matching each token has taken
  std::size_t kept_bytes_ = 0;
  double credit_ = 0;  // seconds that may be used
};

}  // namespace bl
