#include "convert/rounding.h"

#include "base/check.h"

namespace bl {

Rounding::Rounding(Products& products, const OrderedHessian& hessian, const TensorView& wanted)
    : products_(products), hessian_(hessian), wanted_(wanted) {
  BL_CHECK(wanted.rows() == std::ssize(hessian.perm) && wanted.columns() % 32 == 0);
}

RoundResult Rounding::run(const GroupList& groups, const GridRules& rules, int sweeps) {
  return products_.ops().round({.groups = groups,
                                .rules = rules,
                                .h = hessian_.h.view(),
                                .u_transposed = hessian_.u_transposed.view(),
                                .importance = hessian_.importance.view(),
                                .wanted = wanted_,
                                .sweeps = sweeps});
}

SlotCodes Rounding::slot_codes(const GroupList& groups, RoundResult& result) const {
  return {.in = wanted_.rows(),
          .out = wanted_.columns(),
          .groups = groups,
          .perm = hessian_.perm,
          .codes = std::move(result.codes)};
}

Rounding::Result Rounding::run(const GroupList& groups, int sweeps) {
  RoundResult result = run(groups, Exl2GridRules(), sweeps);
  RoundedMatrix matrix{slot_codes(groups, result), std::move(result.column_codes),
                       std::move(result.scales)};
  return {std::move(matrix), std::move(result.slot_errors), result.error};
}

}  // namespace bl
