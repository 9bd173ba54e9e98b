#include "convert/output_distributions.h"

namespace bl {

OutputDistributions::OutputDistributions(Products& products, const TensorView& logits)
    : products_(products),
      p_(products.matrix(logits.shape)),
      entropy_(static_cast<std::size_t>(logits.rows())) {
  products.ops().softmax(p_.view(), logits, entropy_);
}

std::vector<double> OutputDistributions::divergences(const TensorView& logits) const {
  std::vector<double> result(entropy_.size());
  products_.ops().divergences(p_.view(), entropy_, logits, result);
  return result;
}

}  // namespace bl
