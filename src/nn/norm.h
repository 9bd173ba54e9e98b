#pragma once
#include "ops/elementwise.h"
#include "ops/op_table.h"
#include "tensor/tensor.h"

namespace bl {

struct NormSpec {
  NormKind kind = NormKind::kRms;
  float eps = 1e-6f;
  bool unit_offset = false;  // the weight is 1 + what the file holds
  bool weighted = true;
  bool operator==(const NormSpec&) const = default;
};

// Normalizes rows, or each head of a row.
class Norm {
 public:
  Norm() = default;
  // Weight and bias are F32 [width] or [heads, width], or empty.
  Norm(const NormSpec& spec, Tensor weight, Tensor bias)
      : spec_(spec), weight_(std::move(weight)), bias_(std::move(bias)), present_(true) {}

  bool present() const { return present_; }
  // The arguments of the op, without x and out.
  NormArgs args() const {
    return {.x = {},
            .out = {},
            .weight = weight_.view(),
            .bias = bias_.view(),
            .kind = spec_.kind,
            .eps = spec_.eps,
            .unit_offset = spec_.unit_offset};
  }
  // x: [tokens, width], or [tokens, heads, width] for a norm of each head. `out` may alias x.
  void forward(ExecContext& ctx, const TensorView& x, const TensorView& out) const;

 private:
  NormSpec spec_;
  Tensor weight_;
  Tensor bias_;
  bool present_ = false;
};

}  // namespace bl
