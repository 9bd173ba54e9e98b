#pragma once
#include <climits>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "convert/products.h"
#include "ops/op_table.h"

namespace bl {

// A copy of what a call read.
struct CallInput {
  Tensor x;  // F32 [tokens, in] of Products::keep(); empty: there is no call
  // Given for a layer of routed experts: its arguments, whose experts and weights lie here. Their x
  // is not to be read.
  std::optional<ExpertsArgs> routed = {};
  Tensor routed_experts = {};  // I32 [tokens, k], in the backend's memory
  Tensor routed_weights = {};  // F32 [tokens, k], in the backend's memory
  // Both in host memory.
  std::vector<std::int32_t> experts = {};
  Tensor weights = {};

  explicit CallInput() = default;
  CallInput(Products& products, const MatmulArgs& args);
  CallInput(Products& products, const ExpertsArgs& args);
};

// What to do with the GEMM calls of one block pass. Calls are numbered in the order in which the
// block makes them: one call multiplies one input by all matrices that read it, or is a whole layer
// of routed experts.
struct CallPlan {
  // Begin with this call and give it `input`, whose x is fetched into `x`; ops before it do
  // nothing, so that the residual stream must be as it was when the call was first reached. −1:
  // begin at the beginning.
  int resume = -1;
  const CallInput* input = nullptr;
  TensorView x = {};
  // Compute what comes before `resume` after all, unheard: for blocks whose calls leave more for
  // later ones than the residual stream. The stream must be as it was at the block's beginning.
  bool replay = false;
  // End before this call; ops behind do nothing.
  int stop = INT_MAX;
  // Matrices that take the place of others.
  const std::map<const PackedMatrix*, const PackedMatrix*>* substitutes = nullptr;
  // Heard in the thread that runs the step: before a call that is reached (also the one at `stop`),
  // and after a call that was computed. Args hold the call's real input.
  std::function<void(int call, const MatmulArgs&)> before = {};
  std::function<void(int call, const MatmulArgs&)> after = {};
  // As `before`, for routed experts.
  std::function<void(int call, const ExpertsArgs&)> before_experts = {};
};

// Takes the place of a backend's table in ExecContext::ops and runs block passes by a CallPlan. For
// capture of inputs, for matrices on trial, and for going through a block in stages without
// computing anything twice.
class CallTable : public OpTable {
 public:
  // `backend`, whose table this wraps, must outlive it.
  explicit CallTable(Backend& backend);

  // Starts a pass: `plan` must outlive it.
  void begin(const CallPlan& plan) const;
  // How many calls the pass has reached.
  int calls() const { return next_; }

  const OpTable& table() const { return table_; }
  // For the ops: whether they compute anything at this point of the pass.
  bool running() const { return (plan_->replay || next_ > plan_->resume) && next_ <= plan_->stop; }
  void matmul(ExecContext& ctx, const MatmulArgs& args) const;
  void experts(ExecContext& ctx, const ExpertsArgs& args) const;

 private:
  // Whether a pass reaches this call, and whether its listeners hear of it.
  bool reaches(int call) const {
    return call <= plan_->stop && (plan_->replay || call >= plan_->resume);
  }
  bool is_heard(int call) const { return call >= plan_->resume; }
  // The matrix that takes the place of `matrix`, which may be null.
  const PackedMatrix* in_place_of(const PackedMatrix* matrix) const;

  Backend& backend_;
  const OpTable& table_;
  // What the backend makes of routed experts some of which are replaced, for the latest such call.
  mutable std::unique_ptr<PackedExperts> replaced_experts_;
  mutable const CallPlan* plan_ = nullptr;
  mutable int next_ = 0;
};

}  // namespace bl
