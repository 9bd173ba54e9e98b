#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/feed_forward.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/backend.h"

namespace bl {

struct MoeSpec {
  std::int64_t hidden = 0;
  int experts = 0;
  int per_token = 0;
  RouteKind route = RouteKind::kSoftmaxTopK;
  bool normalize = true;
  float normalize_power = 0.0f;
  float multiplier = 1.0f;  // on the routed experts' weights
  int group_count = 1;
  int group_top = 1;
  bool weights_on_input = false;
  FeedForwardSpec expert;                 // shape of one routed expert
  std::optional<FeedForwardSpec> shared;  // an expert that every token uses
  bool shared_gate = false;               // its output times σ(x · w)
  bool operator==(const MoeSpec&) const = default;
};

// Routed experts, with an optional shared one.
class Moe {
 public:
  struct Expert {
    Linear gate, up, down;  // gate empty when not gated or fused into up
  };
  struct Weights {
    Linear router;
    Tensor selection_bias;  // F32 [experts] or empty
    std::vector<Expert> experts;
    bool fused_gate_up = false;  // `up` holds rows of gate, then of up
    FeedForward shared;
    Linear shared_gate;  // [hidden, 1]
    Tensor zeros;        // F32 [hidden]: clears an output that only routed experts add to
  };

  Moe() = default;
  Moe(const MoeSpec& spec, Weights weights);
  Moe(Moe&&) = default;
  Moe& operator=(Moe&&) = default;

  bool present() const { return !weights_.experts.empty(); }
  // To be called once, after the weights are loaded and before `forward`.
  void pack(Backend& backend) { packed_ = backend.pack_experts(table_); }
  // x: [tokens, hidden], normalised.
  void forward(ExecContext& ctx, const TensorView& x, const LayerSink& sink) const;
  static std::size_t work_bytes(const MoeSpec& spec, std::int64_t tokens);

  template <class V>
  void visit(V&& v) {
    v("router", weights_.router);
    for (std::size_t e = 0; e < weights_.experts.size(); ++e) {
      const std::string prefix = "experts." + std::to_string(e) + ".";
      v(prefix + "gate_proj", weights_.experts[e].gate);
      v(prefix + "up_proj", weights_.experts[e].up);
      v(prefix + "down_proj", weights_.experts[e].down);
    }
    weights_.shared.visit(v);
    v("shared_gate", weights_.shared_gate);
  }

 private:
  void add_shared(ExecContext& ctx, const TensorView& x, const LayerSink& sink) const;

  MoeSpec spec_;
  Weights weights_;
  std::vector<ExpertWeights> table_;  // of weights_.experts, as the op wants it
  std::unique_ptr<PackedExperts> packed_;
};

}  // namespace bl
