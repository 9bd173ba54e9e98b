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

// Runs steps on one session: whoever decides who runs (a command, the engine) says what a step
// computes.
class StepRunner {
 public:
  // The session must outlive the runner.
  explicit StepRunner(ModelSession& session);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Computes the items; the sequences' `cached` grows by what was computed. At most
  // session.step_tokens() tokens and session.logit_rows() rows. Throws kLimit when the cache has no
  // page left. The logits are valid until the next run.
  // `states`: what else is wanted of the rows of logits, each with room for them.
  StepLogits run(std::span<const StepItem> items, std::span<const StateRows> states = {});

  // The same, but the backend chooses the tokens of the rows that say by what (StepItem::sampling),
  // where it can: the output has ids then, and logits only of rows whose id is −1.
  StepOutput choose(std::span<const StepItem> items);

  // choose() in two halves, and a step behind one that is under way, as StepModel has them.
  void start(std::span<const StepItem> items);
  StepOutput take();
  bool repeat(std::span<const StepItem> items);

  // Guesses behind texts, as StepModel::draft has them.
  StepOutput draft(std::span<const StepItem> items);

  // Forgets the cache behind the first `tokens` tokens, and the tokens behind them.
  void truncate(Sequence& sequence, std::int64_t tokens);

 private:
  // A step that is under way, or was last.
  struct Step {
    DeviceRows rows;
    TensorView logits;
  };
  enum class Way { kLogits, kChosen, kAgain };
  void forget();
  void enqueue(std::span<const StepItem> items, Way way, std::span<const StateRows> states = {});
  // The rows that `output` has no id of.
  StepLogits on_host(const TensorView& logits, const StepOutput& output);

  ModelSession& session_;
  Tensor host_logits_;         // where the backend's memory is not the host's
  std::array<Step, 2> steps_;  // of each of the backend's lanes
  CarriedRows carried_;
  int newest_ = 0;  // lane
  int under_way_ = 0;
};

}  // namespace bl
