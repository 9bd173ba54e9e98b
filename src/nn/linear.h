#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>

#include "nn/norm.h"
#include "nn/residual_stream.h"
#include "ops/matmul.h"
#include "ops/op_table.h"
#include "tensor/tensor.h"

namespace bl {

// A packed weight matrix with its bias. Every GEMM of a model goes through the functions below, the
// one seam where adapters attach (nn/lora.h).
class Linear {
 public:
  Linear() = default;
  // `bias` is F32 [out] in the backend's memory, or empty. `id` is what adapters know it by: its
  // number among the linears of its model; −1: none.
  Linear(std::unique_ptr<PackedMatrix> weight, Tensor bias, std::int32_t id = -1)
      : weight_(std::move(weight)), bias_(std::move(bias)), id_(id) {}

  bool empty() const { return weight_ == nullptr; }
  bool has_bias() const { return !bias_.empty(); }
  std::int64_t in() const { return weight_->in(); }
  std::int64_t out() const { return weight_->out(); }
  std::int32_t id() const { return id_; }
  std::size_t bytes() const;
  const PackedMatrix& weight() const { return *weight_; }
  // Null where nothing is loaded: a walk over a model's tensors that only checks them.
  const PackedMatrix* weight_or_null() const { return weight_.get(); }
  TensorView bias() const { return bias_.view(); }

 private:
  std::unique_ptr<PackedMatrix> weight_;
  Tensor bias_;
  std::int32_t id_ = -1;
};

// The weights of the linears that are not empty, as PrefetchHint::weights.
NextWeights next_weights_of(std::initializer_list<const Linear*> linears);

// One GEMM of a call: out [tokens, linear.out()], rows may be strided.
struct LinearOutput {
  const Linear* linear = nullptr;
  TensorView out;
};

// What a layer reads: x [tokens, in]; or x normalised, where the norm is left to the prologue of
// the layer's first GEMMs (GemmFusion::norm).
struct LayerInput {
  LayerInput(const TensorView& view) : x(view) {}
  LayerInput(const ResidualStream::Reading& reading, const Norm& pending)
      : x(reading.x), partials(reading.partials), sum(reading.sum), norm(&pending) {}
  std::int64_t rows() const { return x.rows(); }
  TensorView x;
  TensorView partials;  // [partials, tokens, …] added to x before the norm, or empty
  TensorView sum;       // where the GEMMs leave x + Σ partials, or empty
  const Norm* norm = nullptr;
};

// Scratch memory for the only input of `reader` where this step passes it on staged
// (ops/staged_input.h); without rows where it is F32.
StagedInput take_staged_input(ExecContext& ctx, const Linear& reader, std::int64_t tokens);

// outputs_j = multiplier · (x · W_j) + bias_j; all read the same x. At most four.
void apply_linears(ExecContext& ctx, const LayerInput& input, std::span<const LinearOutput> outputs,
                   float multiplier = 1.0f);

// apply_linears() of the queries (and keys and values) of `attention`, whose cache may be
// prefetched meanwhile; null where nothing attends to them at once.
void apply_query_linears(ExecContext& ctx, const LayerInput& input,
                         std::span<const LinearOutput> outputs, const AttentionArgs* attention);

// apply_linears() of the gate and up of `activation`, which is run on them. `reader`, where it is
// given, is the linear that reads activation.out next: act(gate) · up may be left to its GEMM
// (ActivateArgs::deferred_gate_mul). Then what that multiplies `out` by is returned
// (LastInput::deferred_mul), else an empty view.
TensorView apply_gated_linears(ExecContext& ctx, const LayerInput& input,
                               std::span<const LinearOutput, 2> outputs,
                               const ActivateArgs& activation, const Linear* reader = nullptr);

// Where the last GEMM of a layer goes: added to the residual stream, or written to a buffer that
// a norm reads next.
struct LayerSink {
  TensorView to;            // F32 [tokens, hidden]
  bool add = true;          // to += multiplier · y, else to = y
  float multiplier = 1.0f;  // of the residual stream; ignored unless `add`
  // The stream whose x `to` is, if there is one: it may be left partial sums.
  ResidualStream* stream = nullptr;
};

// What the last GEMM of a layer reads: x, or a staged form of it, or x · deferred_mul.
struct LastInput {
  LastInput(const TensorView& view) : x(view) {}
  LastInput(const TensorView& view, const StagedInput& staged)
      : x(view), staged_x(staged.rows.empty() ? nullptr : &staged) {}
  TensorView x;
  const StagedInput* staged_x = nullptr;
  TensorView deferred_mul = {};
};

// sink ← x · W + bias. Takes scratch [tokens, out] only where a bias and a multiplier meet.
void apply_last_linear(ExecContext& ctx, const LastInput& input, const Linear& linear,
                       const LayerSink& sink);

}  // namespace bl
