#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/feed_forward.h"
#include "nn/linear.h"
#include "nn/lora.h"
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
  float multiplier = 1.0f;  // applied to the weights of the routed experts
  int group_count = 1;
  int group_top = 1;
  bool weights_on_input = false;
  // If set, the router reads the residual stream through this norm.
  std::optional<NormSpec> router_norm;
  float router_multiplier = 1.0f;         // applied to the router's logits
  bool expert_scale = false;              // a learned factor for the weight of each expert
  FeedForwardSpec expert;                 // shape of one routed expert
  std::optional<FeedForwardSpec> shared;  // an expert that every token uses
  bool shared_gate = false;               // multiply the shared expert's output by σ(x · w)
  bool operator==(const MoeSpec&) const = default;
};

// Routed experts, with an optional shared expert. The router reads what the experts read, or the
// residual stream through a norm of its own.
class Moe {
 public:
  struct Expert {
    Linear gate, up, down;  // gate is empty if there is none or it is fused into up
  };
  struct Weights {
    Linear router;
    Norm router_norm;
    Tensor selection_bias;  // F32 [experts] or empty
    Tensor expert_scale;    // F32 [experts] or empty
    std::vector<Expert> experts;
    bool fused_gate_up = false;  // `up` holds the rows of gate, then those of up
    FeedForward shared;
    Linear shared_gate;  // [hidden, 1]
    Tensor zeros;        // F32 [hidden]; clears an output to which only routed experts add
  };

  Moe() = default;
  Moe(const MoeSpec& spec, Weights weights);
  Moe(Moe&&) = default;
  Moe& operator=(Moe&&) = default;

  bool present() const { return !weights_.experts.empty(); }
  // Call once, after the weights are loaded and before forward().
  void pack(Backend& backend) {
    backend_ = &backend;
    packed_ = backend.pack_experts(table_);
  }
  struct Input {
    TensorView x;         // F32 [tokens, hidden], normalized
    TensorView residual;  // before any norm; read only if the router has a norm of its own
  };
  // Sends the result to `sink`, which may add to input.residual.
  void forward(ExecContext& ctx, const Input& input, const LayerSink& sink) const;
  // Scratch bytes of forward(), without what the backend's ops take.
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
  void run_router(ExecContext& ctx, const Input& input, const TensorView& logits) const;
  void add_shared(ExecContext& ctx, const TensorView& x, const LayerSink& sink) const;
  bool is_adapted(const AdapterMix& mix) const;
  void run_experts(ExecContext& ctx, const ExpertsArgs& args) const;

  MoeSpec spec_;
  Weights weights_;
  std::vector<ExpertWeights> table_;  // weights_.experts in the form that the op takes
  std::unique_ptr<PackedExperts> packed_;
  Backend* backend_ = nullptr;
  std::int32_t first_linear_ = 0;  // the experts' linears have ids in [first_linear_, end_linear_)
  std::int32_t end_linear_ = 0;
};

}  // namespace bl
