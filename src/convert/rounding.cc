#include "convert/rounding.h"

#include "base/check.h"

namespace bl {

Rounding::Rounding(Products& products, const OrderedHessian& hessian, const TensorView& wanted)
    : products_(products), hessian_(hessian), wanted_(wanted) {
  BL_CHECK(wanted.rows() == std::ssize(hessian.perm) && wanted.columns() % 32 == 0);
}

RoundArgs Rounding::args_of(const GroupList& groups, const GridRules& rules) const {
  return {.groups = groups,
          .rules = rules,
          .h = hessian_.h.view(),
          .u_transposed = hessian_.u_transposed.view(),
          .importance = hessian_.importance.view(),
          .wanted = wanted_};
}

RoundResult Rounding::run(const GroupList& groups, const GridRules& rules, int sweeps) {
  RoundArgs args = args_of(groups, rules);
  args.sweeps = sweeps;
  return products_.ops().round(args);
}

std::vector<double> Rounding::slot_errors(const GroupList& groups) {
  RoundArgs args = args_of(groups, Exl2GridRules());
  args.only_errors = true;
  return products_.ops().round(args).slot_errors;
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
