#pragma once
#include <cstdint>

#include "nn/linear.h"
#include "ops/elementwise.h"

namespace bl {

struct FeedForwardSpec {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  bool gated = true;
  Activation activation = Activation::kSilu;
  float limit = 0.0f;        // clamp of gate and up, 0: none
  bool limit_after = false;  // of act(gate) in place of gate
  bool has_xielu = false;    // its parameters are tensors of the checkpoint
  bool operator==(const FeedForwardSpec&) const = default;
};

// down(act(gate(x)) · up(x)), or down(act(up(x))). Gate and up may be one matrix.
class FeedForward {
 public:
  struct Weights {
    Linear gate;     // empty when plain or fused
    Linear up;       // empty when fused
    Linear gate_up;  // rows of gate, then rows of up
    Linear down;
    float xielu_alpha_p = 0.0f;  // after softplus
    float xielu_alpha_n = 0.0f;  // after softplus, beta added
    float xielu_beta = 0.5f;
    float xielu_eps = -1e-6f;
  };

  FeedForward() = default;
  FeedForward(const FeedForwardSpec& spec, Weights weights)
      : spec_(spec), weights_(std::move(weights)) {}

  bool present() const { return !weights_.down.empty(); }
  void forward(ExecContext& ctx, const LayerInput& x, const LayerSink& sink) const;
  // What it begins with.
  NextWeights first_weights() const {
    return next_weights_of({&weights_.gate, &weights_.up, &weights_.gate_up});
  }
  static std::size_t work_bytes(const FeedForwardSpec& spec, std::int64_t tokens);

  template <class V>
  void visit(V&& v) {
    v("gate_proj", weights_.gate);
    v("up_proj", weights_.up);
    v("gate_up_proj", weights_.gate_up);
    v("down_proj", weights_.down);
  }

 private:
  FeedForwardSpec spec_;
  Weights weights_;
};

}  // namespace bl
