#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/held_answer.h"
#include "engine/open_request.h"
#include "engine/prompt_healing.h"
#include "engine/row_sampler.h"
#include "engine/step_model.h"
#include "engine/token_counts.h"
#include "sample/constraint.h"
#include "sample/sampler_chain.h"

namespace bl {

// What decides which token follows an answer's text: the sampler chain, the constraint, and how far
// the prompt's end has been chosen again (token healing). It says so to the model, where that may
// choose the token itself, or else to the row sampler.
//
// Invariant: the chain, the constraint and the healing stand at the same token of the text, except
// between the draw of a row and the moment in which its token is accepted or taken back.
class AnswerSampler {
 public:
  struct Args {
    const OpenRequest& open;
    std::shared_ptr<const SamplingParams> sampling;  // of `open`
    std::int32_t choice = 0;
    std::unique_ptr<Constraint> constraint;  // null: none
  };
  explicit AnswerSampler(Args args);

  const SamplingParams& params() const { return chain_->params(); }
  SamplerChain& chain() { return *chain_; }
  Constraint* constraint() { return constraint_.get(); }
  const HealingProgress& healing() const { return healing_; }

  // Chooses all further tokens by other parameters, on the host. The seed stays, and so does what
  // the chain has learned.
  void change(std::shared_ptr<const SamplingParams> sampling);

  // Whether nothing but the request's parameters and the text decides what follows, so that the
  // model may choose it on the device.
  bool may_sample_on_device() const { return on_device_; }
  // Leaves all further tokens to the host.
  void stay_on_host() { on_device_ = false; }
  // Sets the item's sampling fields where the model may choose the tokens behind its rows.
  // `prompt`, `generated`: tokens of the text that are not, and that are, the answer's so far.
  void let_model_choose(StepItem& item, std::int64_t prompt, std::int64_t generated);

  // Sets the fields of `task` that decide which token is drawn. `task.history` and
  // `task.generated` are set.
  void fill(RowTask& task, std::span<const std::int32_t> end_tokens);

  // The chosen token stands for a part of the prompt's end.
  void accept_healed(std::int32_t id) { healing_.accept(id); }

  // Where the answer stands behind its newest token.
  HeldAnswer::Place place() const { return {chain_->state(), healing_}; }
  // The chain's state behind a token that is taken now; the chain may have drawn more.
  void restore(const SamplerState& state) { chain_->restore(state); }
  void go_back(const HeldAnswer::Place& place);
  // Behind go_back(): the constraint forgets all but the first `generated` tokens of the answer,
  // including guesses that it accepted and that were not taken.
  void roll_constraint_back(std::int64_t generated);

 private:
  const OpenRequest& open_;
  std::int32_t choice_;
  std::optional<SamplerChain> chain_;
  bool on_device_;
  PenaltyCounts counts_;  // for the model
  std::unique_ptr<Constraint> constraint_;
  HealingProgress healing_;
};

}  // namespace bl
