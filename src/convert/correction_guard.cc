#include "convert/correction_guard.h"

#include <algorithm>

namespace bl {
namespace {

constexpr double kShares[] = {1.0, 0.75, 0.5, 0.25, 0.0};

}  // namespace

// The error changes by s² · tr(Dᵀ H D) − 2 s · tr(Dᵀ (C − H W)) for a change s · D.
double CorrectionGuard::kept_share(const TensorView& weights, const TensorView& change,
                                   double strength) const {
  FittingOps& ops = products.ops();
  const Tensor h = products.matrix(hessian.shape);
  ops.gather_symmetric(h.view(), hessian, perm);
  const Tensor of_change = products.product(h.view(), change);
  const double curve = ops.dot(change, of_change.view(), {});
  // H is symmetric, so that tr(Dᵀ H W) = tr(Wᵀ H D).
  const double slope = ops.dot(change, cross, perm) - ops.dot(weights, of_change.view(), {});
  return *std::min_element(std::begin(kShares), std::end(kShares), [&](double a, double b) {
    const auto error = [&](double share) {
      const double s = share * strength;
      return s * (s * curve - 2.0 * slope);
    };
    return error(a) < error(b);
  });
}

}  // namespace bl
