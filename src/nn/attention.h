#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/step_inputs.h"

namespace bl {

// Normalisation of queries or keys.
struct QkNormSpec {
  NormSpec norm;
  bool across_heads = false;  // all heads of a token together; else each head by itself
  bool after_rope = false;
};

enum class AttentionGate : std::uint8_t {
  kNone,
  kSigmoidHead,     // out_h · σ(g_h)
  kSoftplusHead,    // out_h · softplus(g_h)
  kSigmoidElement,  // out · σ(g), g as wide as out
};

struct AttentionSpec {
  std::int64_t hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int rope = -1;        // index into the model's rope tables; −1: no rotation
  int query_rope = -1;  // differs from `rope` where queries are scaled by position
  float scale = 1.0f;
  float softcap = 0.0f;
  float clip = 0.0f;        // clamp of q, k and v after norms before the rotation; 0: none
  std::int32_t window = 0;  // keys a query sees, itself included; 0: all
  std::optional<QkNormSpec> q_norm;
  std::optional<QkNormSpec> k_norm;
  std::optional<NormSpec> v_norm;
  AttentionGate gate = AttentionGate::kNone;
  float alibi_max = 0.0f;     // slopes 2^(−alibi_max · …); 0: no ALiBi
  bool sinks = false;         // a learned logit a head in the denominator
  bool value_is_key = false;  // v = k as projected
  bool causal = true;         // false: whoever makes the step lets its tokens see each other
};

// Grouped-query attention over paged keys and values.
class Attention {
 public:
  struct Weights {
    Linear q, k, v;  // empty when fused; v also when value_is_key
    Linear qkv;      // rows of q, k, v
    Linear gate;
    Linear o;
    Norm q_norm, k_norm, v_norm;
    Tensor sinks;         // F32 [heads] or empty
    Tensor alibi_slopes;  // F32 [heads] or empty
  };
  // What rotates this layer's heads; rotated = 0: nothing.
  struct Rotation {
    std::int64_t rotated = 0;
    RopeStyle style = RopeStyle::kNeox;
  };

  Attention() = default;
  Attention(const AttentionSpec& spec, const Rotation& rotation, Weights weights)
      : spec_(spec), rotation_(rotation), weights_(std::move(weights)) {}

  bool present() const { return !weights_.o.empty(); }
  // x: [tokens, hidden], normalised. What is found goes to the sink: of all rows, or of `kept`. A
  // step that finds its keys written is for a layer whose keys are apart.
  void forward(ExecContext& ctx, const StepInputs& step, const LayerInput& x, const LayerSink& sink,
               const KeptRows* kept) const;
  // Whether keys and values can be computed without queries, and these without them.
  bool keys_are_apart() const {
    return weights_.qkv.empty() && !spec_.value_is_key && spec_.clip == 0.0f;
  }
  // Leaves keys and values alone: no query is computed unless it is not apart.
  void write_keys(ExecContext& ctx, const StepInputs& step, const LayerInput& x) const;
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

  // What it begins with.
  NextWeights first_weights() const {
    const Weights& w = weights_;
    return next_weights_of({&w.q, &w.k, &w.v, &w.qkv, &w.gate});
  }

  // As it will run in a step, for who wants to know before its queries are there: they are without
  // data.
  AttentionArgs expected(const StepInputs& step) const;

 private:
  struct Heads;  // q, k and v of a step as views
  struct Result;
  // `attends`: the step they are projected for, or null where nothing reads the queries at once.
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

// Slope of each head: a geometric series for a power of two, and its odd members in between for
// other counts (arXiv 2108.12409, and the public code that extended it).
std::vector<float> alibi_slopes(int heads, float alibi_max);

}  // namespace bl
