#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/model_session.h"
#include "engine/sequence.h"
#include "tensor/tensor.h"

namespace bl {

// Which of an item's new tokens need logits.
enum class LogitRows { kNone, kLast, kAll };

// The next `count` tokens of a sequence: ids[cached, cached + count).
struct StepItem {
  Sequence* sequence = nullptr;
  std::int64_t count = 0;
  LogitRows logits = LogitRows::kNone;
};

// What one forward pass computes. Whoever decides who runs (a command, a scheduler) makes this
// value; StepRunner carries it out.
using StepPlan = std::span<const StepItem>;

// Logits of the rows that a plan asked for, in its order, in host memory. Valid until the next run.
class StepLogits {
 public:
  StepLogits() = default;
  StepLogits(TensorView view) : view_(view) {}  // F32 [rows, vocab]
  std::int64_t rows() const { return view_.rows(); }
  std::span<const float> row(std::int64_t i) const {
    return {view_.row<float>(i), static_cast<std::size_t>(view_.columns())};
  }

 private:
  TensorView view_;
};

// Runs plans on one session.
class StepRunner {
 public:
  // The session must outlive the runner.
  explicit StepRunner(ModelSession& session) : session_(session) {}

  // Computes the plan; the sequences' `cached` grows by what was computed. At most
  // session.step_tokens() tokens and session.logit_rows() rows. Throws kLimit when the cache has no
  // page left.
  StepLogits run(StepPlan plan);

  // Forgets the cache behind the first `tokens` tokens, and the tokens behind them.
  void truncate(Sequence& sequence, std::int64_t tokens);

 private:
  ModelSession& session_;
  Tensor host_logits_;  // where the backend's memory is not the host's
};

}  // namespace bl
