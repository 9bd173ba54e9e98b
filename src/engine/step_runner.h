#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "engine/carried_rows.h"
#include "engine/device_rows.h"
#include "engine/model_session.h"
#include "engine/step_model.h"
#include "tensor/tensor.h"

namespace bl {

// Runs steps on one session. The caller (the engine, or a command) decides what a step computes.
//
// Invariant: at most two steps are under way, and the second one repeats the first (repeat()).
class StepRunner {
 public:
  // The session must outlive the runner.
  explicit StepRunner(ModelSession& session);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Computes the items, at most session.step_tokens() tokens and session.logit_rows() rows;
  // `cached` of the sequences grows by what was computed. The logits are valid until the next step.
  // `states`: hidden states that are wanted too, each with room for all rows. Throws kLimit where
  // the cache has no page left.
  StepLogits run(std::span<const StepItem> items, std::span<const StateRows> states = {});

  // Computes the items, and lets the backend choose the tokens of rows whose items have
  // StepItem::sampling, where it can: the output has ids then, and logits only of rows whose id is
  // −1.
  StepOutput choose(std::span<const StepItem> items);

  // As in StepModel; start() and take() are the two halves of choose().
  void start(std::span<const StepItem> items);
  StepOutput take();
  bool repeat(std::span<const StepItem> items);

  // As StepModel::draft().
  StepOutput draft(std::span<const StepItem> items);

  // Cuts the sequence to its first `tokens` tokens, in the cache too.
  void truncate(Sequence& sequence, std::int64_t tokens);

 private:
  // The step that is under way in a step buffer, or was the last one there.
  struct Step {
    DeviceRows rows;
    TensorView logits;
  };
  enum class Way { kLogits, kChosen, kAgain };
  void forget();
  void enqueue(std::span<const StepItem> items, Way way, std::span<const StateRows> states = {});
  // Copies the rows without an id in `output` to the host.
  StepLogits on_host(const TensorView& logits, const StepOutput& output);

  ModelSession& session_;
  Tensor host_logits_;         // for backends whose memory the host cannot read
  std::array<Step, 2> steps_;  // by step buffer of the backend
  CarriedRows carried_;
  int newest_ = 0;     // the step buffer of the newest step
  int under_way_ = 0;  // steps that are not taken yet
};

}  // namespace bl
