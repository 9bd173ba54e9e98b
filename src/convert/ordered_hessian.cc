#include "convert/ordered_hessian.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"

namespace bl {
namespace {

using Doubles = std::vector<double>;

// The mean square of each channel.
Doubles diagonal_of(Products& products, const TensorView& sum, std::int64_t tokens) {
  const std::int64_t n = sum.rows();
  TensorView entries = sum;  // [n, 1]
  entries.shape = {n, 1};
  entries.row_stride = sum.row_stride + 1;
  const Tensor gathered = products.zeros(n, 1);
  products.ops().add_scaled(gathered.view(), entries, 1.0f);
  const Tensor own = products.to_host(gathered.view());
  Doubles diagonal(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = own.view().as<const float>()[i] / static_cast<double>(tokens);
    if (!std::isfinite(value)) {
      fail(ErrorCode::kInvalidArgument,
           "input channel {} of a linear has values that are not finite during calibration", i);
    }
    diagonal[static_cast<std::size_t>(i)] = value;
  }
  return diagonal;
}

// The channels in this order: slot → channel.
std::vector<std::int32_t> ordered_channels(const Doubles& diagonal, const SlotOrder& order) {
  std::vector<std::int32_t> perm(diagonal.size());
  std::iota(perm.begin(), perm.end(), 0);
  if (order.kind == SlotOrder::Kind::kChannels) return perm;
  std::size_t size = diagonal.size();
  if (order.kind == SlotOrder::Kind::kGroupImportance) {
    BL_CHECK(order.group_size > 0);
    size = static_cast<std::size_t>(order.group_size);
  }
  Doubles largest((diagonal.size() + size - 1) / size, 0.0);  // by group; −1: stays last
  for (std::size_t i = 0; i < diagonal.size(); ++i) {
    largest[i / size] = std::max(largest[i / size], diagonal[i]);
  }
  if (diagonal.size() % size != 0) largest.back() = -1.0;
  std::stable_sort(perm.begin(), perm.end(), [&](std::int32_t a, std::int32_t b) {
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    const std::size_t g = i / size, h = j / size;
    if (g == h) return diagonal[i] > diagonal[j];
    return largest[g] != largest[h] ? largest[g] > largest[h] : g < h;
  });
  return perm;
}

}  // namespace

OrderedHessian order_hessian(Products& products, const TensorView& sum, std::int64_t tokens,
                             double damping, const SlotOrder& order) {
  constexpr int kAttempts = 10;
  const Doubles diagonal = diagonal_of(products, sum, tokens);
  double mean = 0.0;
  for (const double value : diagonal) mean += value / static_cast<double>(diagonal.size());
  OrderedHessian result;
  result.tokens = tokens;
  result.perm = ordered_channels(diagonal, order);
  const double step = std::max(damping * mean, 1e-8);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    result.added_damping = attempt;
    result.damping = step * (attempt + 1);
    std::optional<FactoredHessian> factored =
        products.ops().factor({.sum = sum,
                               .perm = result.perm,
                               .tokens = static_cast<double>(tokens),
                               .damping = result.damping});
    if (!factored) continue;
    result.h = std::move(factored->h);
    result.u_transposed = std::move(factored->u_transposed);
    result.importance = std::move(factored->importance);
    return result;
  }
  fail(ErrorCode::kInvalidArgument,
       "the statistics of a linear's input are not positive definite even when damped; more "
       "calibration rows (-r) may help");
}

Tensor in_slot_order(Products& products, const TensorView& weight,
                     const std::vector<std::int32_t>& perm, std::int64_t padded_out) {
  Tensor result = products.matrix({weight.columns(), padded_out});
  products.ops().load_in_slot_order({.out = result.view(), .weight = weight, .perm = perm});
  return result;
}

}  // namespace bl
