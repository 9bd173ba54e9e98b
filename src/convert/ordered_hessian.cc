#include "convert/ordered_hessian.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "tensor/dtype.h"

namespace bl {
namespace {

constexpr std::int64_t kBlock = 64;

using Doubles = std::vector<double>;

// Columns [begin, end) of the rows below a diagonal block, transposed: [end − begin, n].
struct Panel {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t n = 0;
  Doubles values;
};

// Subtracts from row i of the lower triangle, behind the panel, what the panel adds to it.
void subtract_panel(const Panel& panel, std::int64_t i, double* row) {
  for (std::int64_t k = panel.begin; k < panel.end; ++k) {
    const double factor = row[k];
    const double* other = panel.values.data() + (k - panel.begin) * panel.n;
    for (std::int64_t j = panel.end; j <= i; ++j) row[j] -= factor * other[j];
  }
}

// Columns [begin, end) of one row of the factor, from the rows of the diagonal block above it.
void solve_row(const Doubles& a, const Panel& panel, double* row) {
  for (std::int64_t j = panel.begin; j < panel.end; ++j) {
    const double* other = a.data() + j * panel.n;
    double sum = row[j];
    for (std::int64_t k = panel.begin; k < j; ++k) sum -= row[k] * other[k];
    row[j] = sum / other[j];
  }
}

bool factor_diagonal(Doubles& a, const Panel& panel) {
  for (std::int64_t i = panel.begin; i < panel.end; ++i) {
    double* row = a.data() + i * panel.n;
    for (std::int64_t j = panel.begin; j <= i; ++j) {
      const double* other = a.data() + j * panel.n;
      double sum = row[j];
      for (std::int64_t k = panel.begin; k < j; ++k) sum -= row[k] * other[k];
      if (j == i && !(sum > 0.0)) return false;
      row[j] = j < i ? sum / other[j] : std::sqrt(sum);
    }
  }
  return true;
}

// Replaces the lower triangle of a [n, n] by its Cholesky factor, block by block. The upper
// triangle may change. Returns false where a pivot is not positive.
bool cholesky(Products& products, Doubles& a, std::int64_t n) {
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    Panel panel{begin, std::min(n, begin + kBlock), n, {}};
    if (!factor_diagonal(a, panel)) return false;
    const std::int64_t below = panel.end;
    products.parallel(n - below, 16, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        solve_row(a, panel, a.data() + (below + i) * n);
      }
    });
    panel.values.assign(static_cast<std::size_t>((below - begin) * n), 0.0);
    for (std::int64_t i = below; i < n; ++i) {
      for (std::int64_t k = begin; k < below; ++k) {
        panel.values[static_cast<std::size_t>((k - begin) * n + i)] =
            a[static_cast<std::size_t>(i * n + k)];
      }
    }
    products.parallel(n - below, 16, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = below + first; i < below + last; ++i) {
        subtract_panel(panel, i, a.data() + i * n);
      }
    });
  }
  return true;
}

// The inverse of the lower triangle of l [n, n], zero above the diagonal.
Doubles inverse_of_lower(Products& products, const Doubles& l, std::int64_t n) {
  Doubles inverse(static_cast<std::size_t>(n * n), 0.0);
  products.parallel(n, kBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < n; ++i) {
      double* row = inverse.data() + i * n;
      if (i < end) row[i] = 1.0;
      const double* factors = l.data() + i * n;
      for (std::int64_t k = begin; k < i; ++k) {
        const double factor = factors[k];
        const double* other = inverse.data() + k * n;
        const std::int64_t last = std::min(end, k + 1);
        for (std::int64_t j = begin; j < last; ++j) row[j] -= factor * other[j];
      }
      const double scale = 1.0 / factors[i];
      for (std::int64_t j = begin; j < std::min(end, i + 1); ++j) row[j] *= scale;
    }
  });
  return inverse;
}

// The mean square of each channel.
Doubles diagonal_of(const TensorView& sum, std::int64_t tokens) {
  const std::int64_t n = sum.rows();
  Doubles diagonal(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const double value = sum.row<const float>(i)[i] / static_cast<double>(tokens);
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
  const std::int64_t n = sum.rows();
  const Doubles diagonal = diagonal_of(sum, tokens);
  double mean = 0.0;
  for (const double value : diagonal) mean += value / static_cast<double>(n);
  OrderedHessian result;
  result.tokens = tokens;
  result.perm = ordered_channels(diagonal, order);
  result.h = make_host_tensor(DType::kF32, {n, n});
  const double step = std::max(damping * mean, 1e-8);
  Doubles reversed(static_cast<std::size_t>(n * n));
  for (int attempt = 0;; ++attempt) {
    for (std::int64_t i = 0; i < n; ++i) {
      float* to = result.h.view().row<float>(i);
      double* back = reversed.data() + (n - 1 - i) * n;
      const std::int32_t ci = result.perm[static_cast<std::size_t>(i)];
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int32_t cj = result.perm[static_cast<std::size_t>(j)];
        const float both = sum.row<const float>(std::min(ci, cj))[std::max(ci, cj)];
        const double value =
            both / static_cast<double>(tokens) + (i == j ? step * (attempt + 1) : 0);
        to[j] = static_cast<float>(value);
        back[n - 1 - j] = value;
      }
    }
    result.damping = step * (attempt + 1);
    if (cholesky(products, reversed, n)) break;
    result.added_damping = attempt + 1;
    if (attempt == 9) {
      fail(ErrorCode::kInvalidArgument,
           "the statistics of a linear's input are not positive definite even when damped; more "
           "calibration rows (-r) may help");
    }
  }
  // H reversed is L · Lᵀ, so H⁻¹ = Uᵀ · U where U is L⁻¹ with both orders reversed.
  const Doubles inverse = inverse_of_lower(products, reversed, n);
  result.u_transposed = make_host_tensor(DType::kF32, {n, n});
  result.importance.resize(static_cast<std::size_t>(n));
  for (std::int64_t j = 0; j < n; ++j) {
    float* to = result.u_transposed.view().row<float>(j);
    for (std::int64_t k = 0; k < n; ++k) {
      to[k] = static_cast<float>(inverse[static_cast<std::size_t>((n - 1 - k) * n + n - 1 - j)]);
    }
    result.importance[static_cast<std::size_t>(j)] = 1.0f / (to[j] * to[j]);
  }
  return result;
}

Tensor in_slot_order(Products& products, const TensorView& weight,
                     const std::vector<std::int32_t>& perm, std::int64_t padded_out) {
  constexpr std::int64_t kRows = 16;
  const std::int64_t in = weight.columns(), out = weight.rows();
  Tensor result = zero_matrix(in, padded_out);
  visit_float_dtype(weight.dtype, [&]<class T>(Tag<T>) {
    products.parallel(out, kRows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = 0; k < in; ++k) {
        float* to = result.view().row<float>(k);
        const std::int32_t channel = perm[static_cast<std::size_t>(k)];
        for (std::int64_t c = begin; c < end; ++c) {
          to[c] = static_cast<float>(weight.row<const T>(c)[channel]);
        }
      }
    });
  });
  return result;
}

}  // namespace bl
