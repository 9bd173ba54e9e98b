#pragma once
#include <span>

#include "ops/elementwise.h"
#include "ops/exec_context.h"
#include "ops/packed_matrix.h"
#include "ops/staged_input.h"
#include "tensor/tensor_view.h"

namespace bl {

// Split-K partial sums of one result at most (Epilogue::partials_out).
inline constexpr std::int64_t kMaxPartials = 8;

struct MatmulOutput {
  const PackedMatrix* weight = nullptr;
  TensorView out;   // F32 [tokens, weight.out()], rows may be strided (a slice of a fused buffer)
  TensorView bias;  // F32 [weight.out()] or empty
};

// What happens to x before it is multiplied, in this order. Everything here is for backends that
// offer it (GemmFusion).
struct Prologue {
  // x + Σ partials is read: F32 [partials, tokens, in], or empty.
  TensorView partials = {};
  // Where x + Σ partials is left besides, F32 as x; or empty.
  TensorView sum = {};
  // x is normalised first. `x` and `out` of the norm are not read. Null: no norm.
  const NormArgs* norm = nullptr;
  // x · deferred_mul, element by element, is read: F32 as x, or empty. Afterwards x may hold
  // anything. See ActivateArgs::deferred_gate_mul.
  TensorView deferred_mul = {};

  bool empty() const { return partials.empty() && norm == nullptr && deferred_mul.empty(); }
};

// What happens to the products before they are stored.
struct Epilogue {
  float multiplier = 1.0f;
  bool accumulate = false;  // out += the result, as for the residual stream
  // Partial sums of `out` from before, F32 [partials, tokens, columns]; only with one output and
  // `accumulate`: out + Σ partials is what is added to.
  TensorView partials = {};
  // Where partial sums of the result may be left beside `out`, F32 [partials, tokens, columns], as
  // many as GemmFusion::partials said; out + Σ partials_out is then the result. Or empty.
  TensorView partials_out = {};
  // The two outputs are its gate and up, and it is run on them: activation->out is the result, and
  // their own `out` may hold anything afterwards. Null: none.
  const ActivateArgs* activation = nullptr;
};

// out_j = multiplier · (x · W_j) + bias_j for one or more matrices that read the same x (q, k and
// v; gate and up).
struct MatmulArgs {
  TensorView x;  // F32 [tokens, in]
  std::span<const MatmulOutput> outputs;
  // x in the form that the only output's weight reads best, or null: then `x` is not read.
  const StagedInput* staged_x = nullptr;
  Prologue prologue = {};
  Epilogue epilogue = {};
  PrefetchHint prefetch = {};

  std::int64_t tokens() const { return (staged_x != nullptr ? staged_x->rows : x).rows(); }
};

// The matrices of a feed-forward layer.
struct GatedMatrices {
  const PackedMatrix* gate = nullptr;
  const PackedMatrix* up = nullptr;
  const PackedMatrix* down = nullptr;
};

// What a layer asks before it lays out its buffers. Members that are null are not asked about.
struct GemmFusionQuery {
  std::int64_t tokens = 0;
  const PackedMatrix* adds = nullptr;    // the weight of a GEMM that accumulates
  const PackedMatrix* reader = nullptr;  // the weight of the only GEMM that reads a result
  GatedMatrices gated = {};              // with the activation that stands between them
  const ActivateArgs* activation = nullptr;
};

// What a backend fuses with the GEMMs that were asked about.
struct GemmFusion {
  bool norm = false;        // Prologue::norm may be given
  bool activation = false;  // Epilogue::activation may be given
  // Row width of the StagedInput of `reader`, in elements; 0: it reads F32 rows.
  std::int64_t staged_width = 0;
  // How many partial sums the GEMM of `adds` would leave beside its output, since it is faster so;
  // up to kMaxPartials. The sum is the same but for rounding.
  std::int64_t partials = 0;
  // act(gate) and up are rather left as they are, and the GEMM of `gated.down` multiplies them.
  bool deferred_gate_mul = false;
};

// Partial sum number i, [tokens, columns].
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
