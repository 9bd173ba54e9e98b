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

// A compiled constraint. Its grammars are immutable, so requests can share them.
struct CompiledConstraint {
  struct Part {
    std::shared_ptr<const CompiledGrammar> grammar{};
    std::int32_t trigger_token = -1;  // ConstraintSpec::trigger_token
  };
  std::vector<Part> parts{};  // all of them must accept the answer
  std::size_t vocab = 0;      // number of tokens that the grammars know
  bool prefer_end = false;    // true if any part asked for ConstraintSpec::prefer_end
  ConstraintLimits limits{};
};

// The state of one answer under its constraint: which tokens may follow the text so far. An end
// token may follow exactly where the text is complete; with prefer_end nothing else may follow
// there. Special tokens never may. If there are several grammars, every one of them must accept a
// token; if no token is acceptable to all of them, the constraint cannot be satisfied.
//
// prepare() computes the next mask and may run on any thread, so that it can overlap the model's
// forward pass; mask() computes it if nobody has. Calls must not overlap. A grammar so ambiguous
// that a token costs more than the limits allow throws kLimit, and the constraint is unusable
// afterwards.
class Constraint {
 public:
  // `end_tokens` are all tokens that end the answer: the model's and the request's.
  Constraint(CompiledConstraint compiled, std::vector<std::int32_t> end_tokens);

  // Computes the mask of the next token. Errors are stored, and mask() throws them.
  void prepare();
  // Returns one bit per token, set if the token may follow, in the layout of PickArgs::mask.
  // `ends_come` says that an end token may be chosen now; pass false while the answer is shorter
  // than min_tokens, and prefer_end is ignored. Throws kInvalidArgument if the text is incomplete
  // and no token can follow it, which happens if the vocabulary lacks the bytes that the grammar
  // needs.
  std::span<const std::uint32_t> mask(bool ends_come = true);
  // Whether mask() includes this token.
  bool allows(std::int32_t token);

  // Advances past `token`. Throws kInvalidArgument and changes nothing if it may not follow. After
  // an end token only rollback() may be called.
  void accept(std::int32_t token);
  // Undoes the last `tokens` calls of accept().
  void rollback(std::int64_t tokens);

  std::int64_t accepted() const { return accepted_; }  // number of tokens
  // Whether the text so far satisfies the constraint.
  bool complete() const;
  // Whether the text is complete and only end tokens could follow, so that the answer is over
  // without one.
  bool finished(bool ends_come = true);

 private:
  // The state of one grammar.
  struct Part {
    // Whether the answer is still unconstrained because the trigger token has not appeared yet.
    bool is_free() const { return trigger_token >= 0 && !trigger_at; }
    std::unique_ptr<GrammarWalk> walk;
    std::int32_t trigger_token = -1;
    std::optional<std::int64_t> trigger_at{};  // accepted_ just after the trigger token
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
  std::vector<std::uint32_t> end_words_;   // the mask that has end tokens only
  std::vector<std::uint32_t> part_words_;  // scratch: the mask of one part
  std::optional<Error> error_;
  std::int64_t accepted_ = 0;  // tokens
  bool prepared_ = false;
  bool any_text_ = false;          // whether a token other than an end token may follow
  std::int64_t ended_ = 0;         // number of end tokens accepted
  std::vector<std::size_t> kept_;  // bytes that matching has kept for each token
  std::size_t kept_bytes_ = 0;
  double credit_ = 0;  // processor seconds that may still be spent
};

}  // namespace bl
