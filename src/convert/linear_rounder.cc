#include "convert/linear_rounder.h"

namespace bl {

const SlotCodes& codes_of(const QuantizedMatrix& matrix) {
  return std::visit([](const SlotCodes& codes) -> const SlotCodes& { return codes; }, matrix);
}

std::vector<std::uint16_t> decoded_rows(const QuantizedMatrix& matrix) {
  return std::visit([](const auto& rounded) { return decoded_rows(rounded); }, matrix);
}

LinearRounder::Result Exl2Rounder::round(Products& products, const std::string& key,
                                         const OrderedHessian& hessian,
                                         const TensorView& wanted) const {
  Rounding::Result rounded = Rounding(products, hessian, wanted).run(groups_.at(key), sweeps_);
  return {std::move(rounded.matrix), rounded.error};
}

LinearRounder::Result GptqRounder::round(Products& products, const std::string&,
                                         const OrderedHessian& hessian,
                                         const TensorView& wanted) const {
  Rounding::Rounded<GptqRounded> rounded = round_gptq(products, hessian, wanted, layout_, sweeps_);
  return {std::move(rounded.matrix), rounded.error};
}

}  // namespace bl
