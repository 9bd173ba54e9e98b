#pragma once
#include "convert/ordered_hessian.h"
#include "convert/rounded_matrix.h"

namespace bl {

// Rounds one linear: finds codes and scales Ŵ with small Σ_c (ŵ_c − w_c)ᵀ H (ŵ_c − w_c) over the
// columns c, where w are the wanted weights and H the Hessian of the input.
//
// First one pass of GPTQ in the order of slots, in which each group's scales are searched when the
// pass reaches it; then, if asked for, sweeps that fit the scales again to the codes and change
// single codes wherever that lowers the loss (coordinate descent). Results depend on nothing but
// the arguments and the backend.
class Rounding {
 public:
  // `wanted`: F32 [in, out] in slot order, `out` a multiple of 32. All must outlive this.
  Rounding(Products& products, const OrderedHessian& hessian, const TensorView& wanted);

  template <class Matrix>
  struct Rounded {
    Matrix matrix;
    // [in]: the share of the loss that GPTQ incurs in each slot. The shares of a slot at another
    // width add up to a good estimate for mixed widths.
    std::vector<double> slot_errors;
    double error = 0.0;  // the loss, after the sweeps
  };
  // For EXL2.
  using Result = Rounded<RoundedMatrix>;
  Result run(const GroupList& groups, int sweeps);
  // Rounded::slot_errors alone, for EXL2.
  std::vector<double> slot_errors(const GroupList& groups);
  // In the terms of FittingOps, for any format.
  RoundResult run(const GroupList& groups, const GridRules& rules, int sweeps);
  // The matrix of these codes, which are taken out of `result`.
  SlotCodes slot_codes(const GroupList& groups, RoundResult& result) const;

 private:
  RoundArgs args_of(const GroupList& groups, const GridRules& rules) const;

  Products& products_;
  const OrderedHessian& hessian_;
  TensorView wanted_;
};

}  // namespace bl
