#pragma once
// Contracts of the ops that touch each element once. Activations are F32 on host backends.

#include <cstdint>
#include <string_view>

#include "ops/exec_context.h"
#include "ops/staged_input.h"
#include "tensor/tensor_view.h"

namespace bl {

struct EmbedArgs {
  const std::int32_t* ids = nullptr;  // [tokens], each in [0, table rows): the caller has checked
  std::int64_t tokens = 0;
  TensorView table;  // [rows, hidden] F32 / F16 / BF16
  TensorView out;    // [tokens, hidden]
  float multiplier = 1.0f;
  bool accumulate = false;  // out += (learned positions)
};

enum class NormKind : std::uint8_t { kRms, kLayer };

// Normalises each segment of each row; a plain norm has one segment a row, per-head norms have one
// a head. x · rsqrt(mean(x²) + eps) · w, or (x − mean) · rsqrt(var + eps) · w + b.
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
  kRelu,
  kRelu2,
  kXielu,
  kSwigluOai
};

// out = act(gate) · up, or act(gate) where `up` is empty.
//   kSwigluOai: g = min(gate, limit), u = clamp(up, ±limit): g·σ(1.702·g)·(u + 1)
//   others with limit > 0: gate ≤ limit, up in ±limit before act(gate)·up; with `limit_after` it is
//   act(gate) that is ≤ limit
//   kXielu: parameters in `xielu` (architectures.md §2)
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
  const StagedInput* staged_out = nullptr;  // see there
  // As Epilogue::activation: act(gate) and up stay in `gate` and `up`, and the GEMM that reads
  // `out` multiplies them (Prologue::deferred_mul).
  bool deferred_gate_mul = false;
};

// x += multiplier · y, the residual stream in F32.
struct AddArgs {
  TensorView x;  // [tokens, width]
  TensorView y;  // [tokens, width]
  float multiplier = 1.0f;
};

// x = cap · tanh(x / cap) when cap > 0, after x *= multiplier.
struct ScaleArgs {
  TensorView x;  // [tokens, width]
  float multiplier = 1.0f;
  float softcap = 0.0f;
};

// x *= σ(gate) (or softplus): gate has one value an element, a head or a row:
// [tokens, width / width_per_gate].
struct GateArgs {
  TensorView x;     // [tokens, width]
  TensorView gate;  // [tokens, gates], gates divides width
  bool softplus = false;
};

// x = min(max(x, -limit), limit)  (clip_qkv)
struct ClampArgs {
  TensorView x;  // [tokens, width]
  float limit = 0.0f;
};

struct CopyRowsArgs {
  TensorView x;                        // [tokens, width]
  const std::int32_t* rows = nullptr;  // [count], in the backend's memory
  std::int64_t count = 0;
  TensorView out;  // [count, width]
};

// x[rows[i]] += weights[i] · y[i] for each row i of y. No row of x is named twice.
struct AddRowsArgs {
  TensorView x;                        // [tokens, width]
  const std::int32_t* rows = nullptr;  // [count], in the backend's memory
  const float* weights = nullptr;      // [count], there too
  TensorView y;                        // [count, width]
};

// out[r]: the index of the greatest logit of row r, the lowest among equals; −1 where the row holds
// NaN or +∞, or nothing but −∞: what such a row is worth is the host's to say.
struct ArgmaxArgs {
  TensorView logits;            // F32 [rows, vocab], rows may be strided
  std::int32_t* out = nullptr;  // [rows], on the device
};

}  // namespace bl
