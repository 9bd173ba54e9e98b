#pragma once
#include <optional>

#include "nn/attention.h"
#include "nn/feed_forward.h"
#include "nn/moe.h"
#include "nn/norm.h"

namespace bl {

// One transformer block:
//   a = attention(norm(x));  x += m · post_norm(a)
//   f = feed_forward(norm(x)); x += m · post_norm(f)
// Every norm may be absent, and so may attention or feed-forward. In a parallel block both read the
// x from before; without a norm of its own, the feed-forward then reads what attention read.
struct BlockSpec {
  std::optional<AttentionSpec> attention;
  std::optional<FeedForwardSpec> feed_forward;
  std::optional<MoeSpec> moe;
  std::optional<NormSpec> attention_norm;
  std::optional<NormSpec> attention_post_norm;
  std::optional<NormSpec> feed_forward_norm;
  std::optional<NormSpec> feed_forward_post_norm;
  bool parallel = false;
  float residual_multiplier = 1.0f;
  bool output_scale = false;  // x *= a learned scalar at the end
};

class Block {
 public:
  struct Weights {
    Norm attention_norm, attention_post_norm, feed_forward_norm, feed_forward_post_norm;
    Attention attention;
    FeedForward feed_forward;
    Moe moe;
    float output_scale = 1.0f;
  };

  Block(const BlockSpec& spec, Weights weights) : spec_(spec), weights_(std::move(weights)) {}

  // x: F32 [tokens, hidden], the residual stream, updated.
  void forward(ExecContext& ctx, const StepInputs& step, const TensorView& x) const;
  // Scratch of one forward, without what the backend's ops take themselves.
  static std::size_t work_bytes(const BlockSpec& spec, std::int64_t hidden, std::int64_t tokens);

  template <class V>
  void visit(V&& v) {
    weights_.attention.visit(v);
    weights_.feed_forward.visit(v);
    weights_.moe.visit(v);
  }

 private:
  template <class F>
  void run(ExecContext& ctx, const TensorView& x, const Norm& post_norm, F&& layer) const;
  TensorView normalised(ExecContext& ctx, const Norm& norm, const TensorView& x) const;
  LayerInput input_of(ExecContext& ctx, const Norm& norm, const TensorView& x) const;
  void run_feed_forward(ExecContext& ctx, const TensorView& x, const LayerInput& input) const;

  BlockSpec spec_;
  Weights weights_;
};

}  // namespace bl
