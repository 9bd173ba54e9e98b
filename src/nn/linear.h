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

// A packed weight matrix with its bias. Every product of a model goes through the functions below:
// the one seam where adapters attach (nn/lora.h).
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

// Of those that are there: what ExecContext::next_weights says of a product with them.
NextWeights next_weights_of(std::initializer_list<const Linear*> linears);

// One product of a call: out [tokens, linear.out()], rows may be strided.
struct LinearOutput {
  const Linear* linear = nullptr;
  TensorView out;
};

// What a layer reads: x [tokens, in], or x normalised, where the norm is left to its first products
// (OpTable::matmul_normalises).
struct LayerInput {
  LayerInput(const TensorView& view) : x(view) {}
  LayerInput(const ResidualStream::Reading& reading, const Norm& pending)
      : x(reading.x), partials(reading.partials), sum(reading.sum), norm(&pending) {}
  std::int64_t rows() const { return x.rows(); }
  TensorView x;
  TensorView partials;  // [rests, tokens, …] added to x before the norm, or empty
  TensorView sum;       // where products leave x + Σ rests, or empty
  const Norm* norm = nullptr;
};

// Whether LayerInput::norm may be given: the backend can, and no adapter has to read the same x.
bool may_leave_norm_to_products(const ExecContext& ctx);

// Memory for what `reader` alone reads, from scratch, where this step passes it on as halves
// (ops/half_input.h); without rows where it is F32.
StagedInput take_staged_input(ExecContext& ctx, const Linear& reader, std::int64_t tokens);

// outputs_j = multiplier · (x · W_j) + bias_j; all read the same x. At most four.
void apply_linears(ExecContext& ctx, const LayerInput& input, std::span<const LinearOutput> outputs,
                   float multiplier = 1.0f);

// The same for what attention reads next (MatmulArgs::attention_behind); null where it does not.
void apply_query_linears(ExecContext& ctx, const LayerInput& input,
                         std::span<const LinearOutput> outputs, const AttentionArgs* behind);

// The same for the gate and up of `activation`, which is run on them. Where `reader` is given, the
// product that reads its `out` next, act(gate) · up may be left to that
// (ActivateArgs::deferred_gate_mul): then what it multiplies `out` by is returned
// (LastInput::factor), else an empty view.
TensorView apply_gated_linears(ExecContext& ctx, const LayerInput& input,
                               std::span<const LinearOutput, 2> outputs,
                               const ActivateArgs& activation, const Linear* reader = nullptr);

// Where the last product of a layer goes: added to the residual stream, or written to a buffer that
// a norm reads next.
struct LayerSink {
  TensorView to;                     // F32 [tokens, hidden]
  bool add = true;                   // to += multiplier · y, else to = y
  float multiplier = 1.0f;           // of the residual stream; ignored unless `add`
  ResidualStream* stream = nullptr;  // whose x `to` is, if it is one's: it may be left rests
};

// What the last product of a layer reads: x, or halves left for it, or x · factor.
struct LastInput {
  LastInput(const TensorView& view) : x(view) {}
  LastInput(const TensorView& view, const StagedInput& left)
      : x(view), staged_x(left.rows.empty() ? nullptr : &left) {}
  TensorView x;
  const StagedInput* staged_x = nullptr;
  TensorView factor = {};
};

// sink ← x · W + bias. Takes scratch [tokens, out] only where a bias and a multiplier meet.
void apply_last_linear(ExecContext& ctx, const LastInput& input, const Linear& linear,
                       const LayerSink& sink);

}  // namespace bl
