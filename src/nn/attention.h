#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/step_inputs.h"

namespace bl {

// Normalization of queries or keys.
struct QkNormSpec {
  NormSpec norm;
  bool across_heads = false;  // all heads of a token together; otherwise each head by itself
  bool after_rope = false;
};

enum class AttentionGate : std::uint8_t {
  kNone,
  kSigmoidHead,     // out_h · σ(gate_h)
  kSoftplusHead,    // out_h · softplus(gate_h)
  kSigmoidElement,  // out · σ(gate), gate as wide as out
};

struct AttentionSpec {
  std::int64_t hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int rope = -1;        // index of the model's rope table; −1: no rotation
  int query_rope = -1;  // table for queries; differs from `rope` if queries are scaled by position
  float scale = 1.0f;
  float softcap = 0.0f;
  float clip = 0.0f;        // clamps q, k and v after the norms that precede the rotation; 0: off
  std::int32_t window = 0;  // number of keys that a query sees, including its own; 0: all
  std::optional<QkNormSpec> q_norm;
  std::optional<QkNormSpec> k_norm;
  std::optional<NormSpec> v_norm;
  AttentionGate gate = AttentionGate::kNone;
  float alibi_max = 0.0f;     // ALiBi slopes are 2^(−alibi_max · …); 0: no ALiBi
  bool sinks = false;         // a learned logit per head in the softmax denominator
  bool value_is_key = false;  // v is k before its norm and rotation
  bool causal = true;         // false: the tokens of a step see each other, as the step's spans say
};

// Grouped-query attention over paged keys and values.
class Attention {
 public:
  struct Weights {
    Linear q, k, v;  // empty if fused; v also if value_is_key
    Linear qkv;      // fused: rows of q, k, v
    Linear gate;
    Linear o;
    Norm q_norm, k_norm, v_norm;
    Tensor sinks;         // F32 [heads] or empty
    Tensor alibi_slopes;  // F32 [heads] or empty
  };
  // How this layer's heads are rotated; rotated = 0 means not at all.
  struct Rotation {
    std::int64_t rotated = 0;
    RopeStyle style = RopeStyle::kNeox;
  };

  Attention() = default;
  Attention(const AttentionSpec& spec, const Rotation& rotation, Weights weights)
      : spec_(spec), rotation_(rotation), weights_(std::move(weights)) {}

  bool present() const { return !weights_.o.empty(); }
  // x: [tokens, hidden], normalized. Sends the result to `sink`, for all rows or only for `kept`. A
  // step with keys_written requires keys_are_apart().
  void forward(ExecContext& ctx, const StepInputs& step, const LayerInput& x, const LayerSink& sink,
               const KeptRows* kept) const;
  // Whether queries can be computed without keys and values, and vice versa.
  bool keys_are_apart() const {
    return weights_.qkv.empty() && !spec_.value_is_key && spec_.clip == 0.0f;
  }
  // Computes and writes only keys and values (and queries if they are not apart).
  void write_keys(ExecContext& ctx, const StepInputs& step, const LayerInput& x) const;
  // Scratch bytes of forward(), without what the backend's ops take.
  static std::size_t work_bytes(const AttentionSpec& spec, std::int64_t tokens);

  template <class V>
  void visit(V&& v) {
    v("q_proj", weights_.q);
    v("k_proj", weights_.k);
    v("v_proj", weights_.v);
    v("qkv_proj", weights_.qkv);
    v("gate_proj", weights_.gate);
    v("o_proj", weights_.o);
  }

  // The matrices that it reads first.
  NextWeights first_weights() const {
    const Weights& w = weights_;
    return next_weights_of({&w.q, &w.k, &w.v, &w.qkv, &w.gate});
  }

  // The arguments of the attention op in a step, before there are queries: args.q has no data.
  AttentionArgs expected(const StepInputs& step) const;

 private:
  struct Heads;  // views of q, k and v of a step
  struct Result;
  // `attends`: the step whose attention reads these queries next, or null if none does.
  Heads project(ExecContext& ctx, const LayerInput& x, const StepInputs* attends) const;
  Heads project_and_normalise(ExecContext& ctx, const LayerInput& x,
                              const StepInputs* attends) const;
  Heads project_queries(ExecContext& ctx, const LayerInput& x, const StepInputs& step) const;
  AttentionArgs attention_args(const StepInputs& step, const TensorView& q) const;
  bool rotates_and_writes() const;
  void normalise_queries(ExecContext& ctx, const TensorView& q, bool after_rope) const;
  void normalise_keys(ExecContext& ctx, const TensorView& k, bool after_rope) const;
  void normalise(ExecContext& ctx, const Heads& heads, bool after_rope) const;
  RopeArgs rope_args(const StepInputs& step, const TensorView& x, int table) const;
  RopeAndWriteArgs rope_and_write_args(const StepInputs& step, const Heads& heads) const;
  void rotate_and_write(ExecContext& ctx, const StepInputs& step, const Heads& heads) const;
  void write_with_queries(ExecContext& ctx, const StepInputs& step, const LayerInput& x) const;
  void attend(ExecContext& ctx, const StepInputs& step, const Heads& heads,
              const Result& result) const;

  AttentionSpec spec_;
  Rotation rotation_;
  Weights weights_;
};

// The slope of each head: a geometric series if the number of heads is a power of two; otherwise
// the odd members of the next finer series follow (arXiv 2108.12409, and its authors' code).
std::vector<float> alibi_slopes(int heads, float alibi_max);

}  // namespace bl
