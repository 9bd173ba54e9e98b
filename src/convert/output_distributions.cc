#include "convert/output_distributions.h"

#include <cmath>

namespace bl {

OutputDistributions::OutputDistributions(Products& products, const TensorView& logits)
    : p_(make_host_tensor(DType::kF32, logits.shape)),
      entropy_(static_cast<std::size_t>(logits.rows())) {
  products.parallel(logits.rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* row = logits.row<const float>(r);
      const LogSum sum = log_sum_of(row, logits.columns());
      double entropy = 0.0;
      for (std::int64_t i = 0; i < logits.columns(); ++i) {
        const double log_p = sum.log_probability(row[i]);
        const double p = std::exp(log_p);
        p_.view().row<float>(r)[i] = static_cast<float>(p);
        entropy -= p * log_p;
      }
      entropy_[static_cast<std::size_t>(r)] = entropy;
    }
  });
}

double OutputDistributions::divergence(std::int64_t row, const float* logits,
                                       const LogSum& sum) const {
  const float* p = p_.view().row<const float>(row);
  double cross = 0.0;
  for (std::int64_t i = 0; i < p_.view().columns(); ++i) {
    cross -= static_cast<double>(p[i]) * (logits[i] - sum.largest);
  }
  return std::max(cross + sum.log_sum - entropy_[static_cast<std::size_t>(row)], 0.0);
}

}  // namespace bl
