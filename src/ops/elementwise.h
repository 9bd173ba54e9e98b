#pragma once
// Contracts of the ops that touch each element once. On host backends activations are F32.

#include <cstdint>
#include <string_view>

#include "ops/exec_context.h"
#include "ops/staged_input.h"
#include "tensor/tensor_view.h"

namespace bl {

// out[t] = multiplier · table[ids[t]], or out[t] += with `accumulate`.
struct EmbedArgs {
  const std::int32_t* ids = nullptr;  // [tokens], each in [0, table rows); the caller checks
  std::int64_t tokens = 0;
  TensorView table;  // [rows, hidden] F32 / F16 / BF16
  TensorView out;    // [tokens, hidden]
  float multiplier = 1.0f;
  bool accumulate = false;  // out += …; used for learned positions
};

enum class NormKind : std::uint8_t { kRms, kLayer };

// Normalizes each segment of each row. A plain norm has one segment per row, per-head norms one per
// head. RMS: x · rsqrt(mean(x²) + eps) · w. Layer: (x − mean) · rsqrt(var + eps) · w + b.
struct NormArgs {
  TensorView x;       // [tokens, segments, width] (rows may be strided)
  TensorView out;     // same shape; may alias x
  TensorView weight;  // F32 [width] or [segments, width]; empty: 1
  TensorView bias;    // F32 like weight, or empty
  NormKind kind = NormKind::kRms;
  float eps = 1e-6f;
  bool unit_offset = false;  // weight means (1 + weight)
};

enum class Activation : std::uint8_t {
  kNone,
  kSilu,
  kGelu,
  kGeluTanh,
  kQuickGelu,
  kGelu10,  // kGelu, cut to [-10, 10]
  kRelu,
  kLeakyRelu,  // slope 0.01 below zero
  kRelu2,
  kMish,  // x · tanh(softplus(x))
  kSigmoid,
  kTanh,
  kXielu,
  kSwigluOai
};

// out = act(gate) · up, or act(gate) if `up` is empty.
//   kSwigluOai: with g = min(gate, limit) and u = clamp(up, ±limit): g·σ(1.702·g)·(u + 1)
//   others with limit > 0: gate is cut to ≤ limit and up to ±limit before act(gate)·up; with
//   `limit_after`, act(gate) is cut instead of gate
//   kXielu: parameters in `xielu_…` (docs/formats/architectures.md §2)
struct ActivateArgs {
  TensorView gate;  // [tokens, width]
  TensorView up;    // [tokens, width] or empty
  TensorView out;   // [tokens, width], may alias gate
  Activation kind = Activation::kSilu;
  float limit = 0.0f;
  bool limit_after = false;
  float xielu_alpha_p = 0.0f;  // after softplus
  float xielu_alpha_n = 0.0f;  // after softplus, beta added
  float xielu_beta = 0.5f;
  float xielu_eps = -1e-6f;
  const StagedInput* staged_out = nullptr;  // receives the result (ops/staged_input.h)
  // If this is Epilogue::activation: leave act(gate) in `gate` and up in `up`; the reader of
  // `out` multiplies them (Prologue::deferred_mul).
  bool deferred_gate_mul = false;
};

// x += multiplier · y; the residual stream in F32.
struct AddArgs {
  TensorView x;  // [tokens, width]
  TensorView y;  // [tokens, width]
  float multiplier = 1.0f;
};

// x *= multiplier; then x = cap · tanh(x / cap) if cap > 0.
struct ScaleArgs {
  TensorView x;  // [tokens, width]
  float multiplier = 1.0f;
  float softcap = 0.0f;
};

// x *= σ(gate), or softplus(gate). Each gate applies to width / gates consecutive elements, so
// there is one per element, per head or per row.
struct GateArgs {
  TensorView x;     // [tokens, width]
  TensorView gate;  // [tokens, gates], gates divides width
  bool softplus = false;
};

// x = min(max(x, −limit), limit), as clip_qkv does.
struct ClampArgs {
  TensorView x;  // [tokens, width]
  float limit = 0.0f;
};

// out[i] = x[rows[i]].
struct CopyRowsArgs {
  TensorView x;                        // [tokens, width]
  const std::int32_t* rows = nullptr;  // [count], in the backend's memory
  std::int64_t count = 0;
  TensorView out;  // [count, width]
};

// x[rows[i]] += weights[i] · y[i] for each row i of y. `rows` has no duplicates.
struct AddRowsArgs {
  TensorView x;                        // [tokens, width]
  const std::int32_t* rows = nullptr;  // [count], in the backend's memory
  const float* weights = nullptr;      // [count], in the backend's memory
  TensorView y;                        // [count, width]
};

// out[r] is the index of the largest logit of row r; ties go to the lowest index. −1 if the row
// contains NaN or +∞ or only −∞; the host then decides what to report.
struct ArgmaxArgs {
  TensorView logits;            // F32 [rows, vocab], rows may be strided
  std::int32_t* out = nullptr;  // [rows], on the device
};

}  // namespace bl
