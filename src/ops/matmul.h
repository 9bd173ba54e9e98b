#pragma once
#include <span>

#include "ops/elementwise.h"
#include "ops/exec_context.h"
#include "ops/packed_matrix.h"
#include "tensor/tensor_view.h"

namespace bl {

// Parts of one sum that a product may leave beside it.
inline constexpr std::int64_t kMaxPartials = 8;

struct MatmulOutput {
  const PackedMatrix* weight = nullptr;
  TensorView out;   // F32 [tokens, weight.out()], rows may be strided (a slice of a fused buffer)
  TensorView bias;  // F32 [weight.out()] or empty
};

struct AttentionArgs;

// out_j = multiplier · (x · W_j) + bias_j for one or more matrices that read the same x (q, k and
// v; gate and up), in one launch. With `accumulate`, out_j += that (the residual stream).
struct MatmulArgs {
  TensorView x;  // F32 [tokens, in]
  std::span<const MatmulOutput> outputs;
  float multiplier = 1.0f;
  bool accumulate = false;
  const StagedInput* staged_x = nullptr;  // what x means: the one output's weight is its reader
  // Where OpTable::partials_left is set: rows as sums of several, F32 [rests, tokens, columns],
  // each as what they go with, or empty. x + Σ x_partials is what is read; out + Σ out_partials is
  // what is added to, if anything is (of one output); and then out + Σ partials_out is the result,
  // whatever part of it lies where.
  TensorView x_partials = {};
  TensorView out_partials = {};
  TensorView partials_out = {};
  // Where x_partials are and this is given: x + Σ x_partials is left there, too.
  TensorView x_sum = {};
  // x is normalised first; x and out of it are not read. Only where OpTable::matmul_normalises.
  const NormArgs* norm = nullptr;
  // The two outputs are its gate and up, and it is run on them: activation->out is the result, and
  // their own `out` views may hold anything afterwards. Only where OpTable::matmul_activates.
  const ActivateArgs* activation = nullptr;
  // F32 as x: x times that, element by element, is what is read; or empty. Where it is, x may hold
  // anything afterwards. Only where OpTable::defers_gate_mul said so.
  TensorView x_deferred_mul = {};
  // Attention whose queries these products make, if it is the next op that reads much: a hint what
  // of the cache to bring near meanwhile. Its `out` may be empty.
  const AttentionArgs* attention_behind = nullptr;
};

// Of a feed-forward layer.
struct GatedMatrices {
  const PackedMatrix* gate = nullptr;
  const PackedMatrix* up = nullptr;
  const PackedMatrix* down = nullptr;
};

// Number i of rests, [tokens, columns].
inline TensorView partial_at(const TensorView& partials, std::int64_t i) {
  BL_CHECK(partials.shape.rank() == 3);
  return view_of(partials.row<float>(i), {partials.shape[1], partials.shape[2]});
}

// Mixture of experts. Routing is a value of its own (RouteArgs), so that the scheduler of experts
// is free to sort tokens by expert.
enum class RouteKind : std::uint8_t {
  kSoftmax,       // softmax over all, take the best k, weights as they are
  kSoftmaxTopK,   // softmax over the selected (= softmax over all, renormalised)
  kSigmoid,       // σ; selection by σ + bias; weights σ / (Σ + 1e-20) when normalised
  kSqrtSoftplus,  // √softplus(logit); selection by that + bias
};

struct RouteArgs {
  TensorView logits;          // F32 [tokens, experts]
  TensorView selection_bias;  // F32 [experts] added to the weights for selection only, or empty
  RouteKind kind = RouteKind::kSoftmaxTopK;
  bool normalize = true;      // kSigmoid, kSqrtSoftplus: divide by the sum of the selected
  float multiplier = 1.0f;    // on the final weights
  float normalize_power = 0;  // 0: as above; p > 0: divide by the p-norm of the selected
  int group_count = 1;        // grouped selection: groups, of which the best by the sum of their
  int group_top = 1;          // two best experts stay
  // F32 [experts], on the final weight of each expert; or empty.
  TensorView expert_scale = {};
  std::int32_t* experts = nullptr;  // [tokens, k] out, on the device; ties go to the lower index
  TensorView weights;               // F32 [tokens, k] out
  int k = 0;
};

struct ExpertWeights {
  const PackedMatrix* gate = nullptr;  // null: not gated, or fused into up
  const PackedMatrix* up = nullptr;    // fused: [gate | up] in one matrix when `fused_gate_up`
  const PackedMatrix* down = nullptr;
  TensorView gate_bias, up_bias, down_bias;  // F32 or empty
};

// What one backend keeps of the experts of a layer beside their matrices, made by
// Backend::pack_experts and opaque to everybody else. Lives no longer than the matrices.
class PackedExperts {
 public:
  virtual ~PackedExperts() = default;
};

// out += Σ_j weights[t, j] · down(act(gate(x_t)) · up(x_t)) over the experts of each token.
struct ExpertsArgs {
  TensorView x;                           // F32 [tokens, hidden]
  std::span<const ExpertWeights> all;     // [experts]
  const PackedExperts* packed = nullptr;  // made of them, for the backends that make it
  const std::int32_t* experts = nullptr;  // [tokens, k]
  TensorView weights;                     // F32 [tokens, k]
  int k = 0;
  bool fused_gate_up = false;     // `up` holds gate rows, then up rows
  bool weights_on_input = false;  // scale x instead of the output
  std::int64_t intermediate = 0;  // width of the hidden layer of one expert
  ActivateArgs activation;        // kind, limit and parameters; views ignored
  TensorView out;                 // F32 [tokens, hidden], accumulated into
};

// Bytes of scratch that `matmul` / `experts` take for so many tokens are said by the backend
// (Backend::scratch_bytes).

}  // namespace bl
