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
// old x; if the feed-forward has no norm of its own, it reads what attention reads. The
// feed-forward is dense, experts, or both side by side (not in a parallel block):
//   f = dense_post_norm(dense(feed_forward_norm(x))) + moe_post_norm(moe(moe_norm(x)))
struct BlockSpec {
  std::optional<AttentionSpec> attention;
  std::optional<FeedForwardSpec> feed_forward;
  std::optional<MoeSpec> moe;
  std::optional<NormSpec> attention_norm;
  std::optional<NormSpec> attention_post_norm;
  std::optional<NormSpec> feed_forward_norm;
  std::optional<NormSpec> feed_forward_post_norm;
  // Only if both are side by side.
  std::optional<NormSpec> dense_post_norm, moe_norm, moe_post_norm;
  bool parallel = false;
  float residual_multiplier = 1.0f;
  bool output_scale = false;  // x *= a learned scalar, at the end
};

class Block {
 public:
  struct Weights {
    Norm attention_norm, attention_post_norm, feed_forward_norm, feed_forward_post_norm;
    Norm dense_post_norm, moe_norm, moe_post_norm;
    Attention attention;
    FeedForward feed_forward;
    Moe moe;
    float output_scale = 1.0f;
  };

  Block(const BlockSpec& spec, Weights weights) : spec_(spec), weights_(std::move(weights)) {}

  // Whether the block has weights. A block that is not loaded has none and would leave x unchanged.
  bool present() const {
    return weights_.attention.present() || weights_.feed_forward.present() ||
           weights_.moe.present();
  }
  // Adds to x.
  void forward(ExecContext& ctx, const StepInputs& step, ResidualStream& x) const;
  // The last block of a step of which few rows are read: copies these rows of x to kept.x and
  // updates them there. x itself is not updated.
  void forward_kept(ExecContext& ctx, const StepInputs& step, ResidualStream& x,
                    const KeptRows& kept) const;
  // Whether the kept rows may run as a step with keys_written (KeptRows::step).
  bool queries_are_apart() const {
    return weights_.attention.present() && spec_.attention->causal &&
           weights_.attention.keys_are_apart();
  }
  // The matrices that it reads first.
  NextWeights first_weights() const {
    return weights_.attention.present() ? weights_.attention.first_weights()
                                        : weights_.feed_forward.first_weights();
  }
  // The arguments of its attention op with these keys and values, or nothing if it has no
  // attention.
  std::optional<AttentionArgs> expected_attention(StepInputs step, const PagedKvView& kv) const;
  // Computes and writes only the keys and values of x. `what` says whether x is the residual stream
  // or has already been normalized for attention.
  enum class KeyInput { kStream, kNormalised };
  void write_keys(ExecContext& ctx, const StepInputs& step, const TensorView& x,
                  KeyInput what) const;
  // Scratch bytes of forward(), without what the backend's ops take.
  static std::size_t work_bytes(const BlockSpec& spec, std::int64_t hidden, std::int64_t tokens);
  // Upper bound of the scratch bytes of forward_kept().
  static std::size_t kept_work_bytes(const BlockSpec& spec, std::int64_t hidden,
                                     std::int64_t tokens, std::int64_t kept);

  template <class V>
  void visit(V&& v) {
    weights_.attention.visit(v);
    weights_.feed_forward.visit(v);
    weights_.moe.visit(v);
  }

 private:
  // The residual stream as the sink of a layer's last product.
  LayerSink end_of(ResidualStream& x) const {
    return {.to = x.x(), .add = true, .multiplier = spec_.residual_multiplier, .stream = &x};
  }
  template <class F>
  void run(ExecContext& ctx, const LayerSink& sink, const Norm& post_norm, F&& layer) const;
  TensorView normalised(ExecContext& ctx, const Norm& norm, const TensorView& x) const;
  LayerInput input_of(ExecContext& ctx, const Norm& norm, ResidualStream& x) const;
  const Norm& parallel_norm() const;
  void run_attention(ExecContext& ctx, const StepInputs& step, ResidualStream& x,
                     const KeptRows* kept) const;
  void write_stream_keys(ExecContext& ctx, const StepInputs& step, ResidualStream& x) const;
  void run_behind_attention(ExecContext& ctx, const StepInputs& step, ResidualStream& x) const;
  void run_feed_forward(ExecContext& ctx, ResidualStream& x, const LayerInput& input) const;
  void run_side_by_side(ExecContext& ctx, ResidualStream& stream) const;

  BlockSpec spec_;
  Weights weights_;
};

}  // namespace bl
