#include "convert/correction_guard.h"

#include <algorithm>

namespace bl {
namespace {

constexpr double kShares[] = {1.0, 0.75, 0.5, 0.25, 0.0};

// The matrix of which `upper` is the upper triangle, with rows and columns in slot order.
Tensor in_both_slot_orders(const TensorView& upper, const std::vector<std::int32_t>& perm) {
  Tensor result = make_host_tensor(DType::kF32, upper.shape);
  for (std::size_t i = 0; i < perm.size(); ++i) {
    float* to = result.view().row<float>(static_cast<std::int64_t>(i));
    for (std::size_t j = 0; j < perm.size(); ++j) {
      to[j] = upper.row<const float>(std::min(perm[i], perm[j]))[std::max(perm[i], perm[j])];
    }
  }
  return result;
}

double dot(const float* a, const float* b, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

}  // namespace

// The error changes by s² · tr(Dᵀ H D) − 2 s · tr(Dᵀ (C − H W)) for a change s · D.
double CorrectionGuard::kept_share(const TensorView& weights, const TensorView& change,
                                   double strength) const {
  const Tensor h = in_both_slot_orders(hessian, perm);
  const Tensor of_change = zero_matrix(change.rows(), change.columns());
  products.add(of_change.view(), h.view(), transposed(products, change).view());
  double curve = 0.0, slope = 0.0;
  for (std::int64_t k = 0; k < change.rows(); ++k) {
    const float* d = change.row<const float>(k);
    const float* hd = of_change.view().row<const float>(k);
    curve += dot(d, hd, change.columns());
    slope += dot(d, cross.row<const float>(perm[static_cast<std::size_t>(k)]), cross.columns());
    slope -= dot(weights.row<const float>(k), hd, change.columns());  // H is symmetric
  }
  return *std::min_element(std::begin(kShares), std::end(kShares), [&](double a, double b) {
    const auto error = [&](double share) {
      const double s = share * strength;
      return s * (s * curve - 2.0 * slope);
    };
    return error(a) < error(b);
  });
}

}  // namespace bl
