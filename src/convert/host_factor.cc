#include "convert/host_factor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "convert/fitting_kernels.h"

namespace bl {
namespace {

constexpr std::int64_t kBlock = 64;

using Doubles = std::vector<double>;

constexpr std::int64_t kRun = 32;  // rows of a panel that lie side by side

// Columns [begin, end) of the rows below a diagonal block, transposed and in runs of rows, so that
// a cache holds what a run is read for: [runs, end − begin, kRun].
struct Panel {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t n = 0;
  Doubles values;
  std::int64_t width() const { return end - begin; }
};

// Fills the values from the rows of the lower triangle of a.
void read_panel(const Doubles& a, Panel& panel) {
  const std::int64_t below = panel.n - panel.end;
  panel.values.assign(static_cast<std::size_t>((below + kRun - 1) / kRun * kRun * panel.width()),
                      0.0);
  for (std::int64_t i = 0; i < below; ++i) {
    const double* row = a.data() + (panel.end + i) * panel.n + panel.begin;
    double* to = panel.values.data() + i / kRun * kRun * panel.width() + i % kRun;
    for (std::int64_t k = 0; k < panel.width(); ++k) to[k * kRun] = row[k];
  }
}

// Subtracts from rows [first, last) of the lower triangle, behind the panel, what the panel adds to
// them.
void subtract_panel(const Panel& panel, std::int64_t first, std::int64_t last, Doubles& a) {
  double* rows = a.data() + first * panel.n;
  for (std::int64_t column = panel.end; column < last; column += kRun) {
    fitting_kernels().update_rows(
        {.to = rows + column,
         .to_stride = panel.n,
         .factors = rows + panel.begin,
         .factor_stride = panel.n,
         .from = panel.values.data() + (column - panel.end) * panel.width(),
         .from_stride = kRun,
         .rows = last - first,
         .count = panel.width(),
         .n = std::min(kRun, last - column)});
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
bool cholesky(const HostThreads& threads, Doubles& a, std::int64_t n) {
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    Panel panel{begin, std::min(n, begin + kBlock), n, {}};
    if (!factor_diagonal(a, panel)) return false;
    const std::int64_t below = panel.end;
    threads.parallel(n - below, 16, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        solve_row(a, panel, a.data() + (below + i) * n);
      }
    });
    read_panel(a, panel);
    threads.parallel(n - below, 16, [&](std::int64_t first, std::int64_t last) {
      subtract_panel(panel, below + first, below + last, a);
    });
  }
  return true;
}

// Computes columns [begin, end) of the inverse of the lower triangle of l [n, n].
void invert_columns(const Doubles& l, std::int64_t n, std::int64_t begin, std::int64_t end,
                    Doubles& inverse) {
  const std::int64_t width = end - begin;
  // [n − begin, width]: rows that lie side by side stay in the cache.
  Doubles columns(static_cast<std::size_t>((n - begin) * width), 0.0);
  const auto row = [&](std::int64_t i) { return columns.data() + (i - begin) * width; };
  const auto subtract = [&](std::int64_t i, std::int64_t rows, std::int64_t k, std::int64_t count) {
    fitting_kernels().update_rows({.to = row(i),
                                   .to_stride = width,
                                   .factors = l.data() + i * n + k,
                                   .factor_stride = n,
                                   .from = row(k),
                                   .from_stride = width,
                                   .rows = rows,
                                   .count = count,
                                   .n = width});
  };
  for (std::int64_t i = begin; i < end; ++i) row(i)[i - begin] = 1.0;
  for (std::int64_t first = begin; first < n; first += kBlock) {
    const std::int64_t last = std::min(n, first + kBlock);
    for (std::int64_t i = first; i < last; ++i) {
      subtract(i, 1, first, i - first);
      const double scale = 1.0 / l[static_cast<std::size_t>(i * n + i)];
      for (std::int64_t j = 0; j < width; ++j) row(i)[j] *= scale;
    }
    subtract(last, n - last, first, last - first);
  }
  for (std::int64_t i = begin; i < n; ++i) {
    std::copy_n(row(i), width, inverse.data() + i * n + begin);
  }
}

// The inverse of the lower triangle of l [n, n], zero above the diagonal.
Doubles inverse_of_lower(const HostThreads& threads, const Doubles& l, std::int64_t n) {
  Doubles inverse(static_cast<std::size_t>(n * n), 0.0);
  threads.parallel(n, kBlock, [&](std::int64_t begin, std::int64_t end) {
    invert_columns(l, n, begin, end, inverse);
  });
  return inverse;
}

template <class F>
void for_each_row(const HostThreads& threads, std::int64_t n, const F& body) {
  threads.parallel(n, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

// H in the order of slots, and with both orders reversed in double.
void gather(const HostThreads& threads, const FactorArgs& args, const TensorView& h,
            Doubles& reversed) {
  const std::int64_t n = h.rows();
  for_each_row(threads, n, [&](std::int64_t i) {
    float* to = h.row<float>(i);
    double* back = reversed.data() + (n - 1 - i) * n;
    const std::int32_t ci = args.perm[static_cast<std::size_t>(i)];
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int32_t cj = args.perm[static_cast<std::size_t>(j)];
      const float both = args.sum.row<const float>(std::min(ci, cj))[std::max(ci, cj)];
      const double value = both / args.tokens + (i == j ? args.damping : 0);
      to[j] = static_cast<float>(value);
      back[n - 1 - j] = value;
    }
  });
}

}  // namespace

std::optional<FactoredHessian> factor_on_host(const HostThreads& threads, const FactorArgs& args) {
  const std::int64_t n = args.sum.rows();
  FactoredHessian result;
  result.h = make_host_tensor(DType::kF32, {n, n});
  Doubles reversed(static_cast<std::size_t>(n * n));
  gather(threads, args, result.h.view(), reversed);
  if (!cholesky(threads, reversed, n)) return std::nullopt;
  // H reversed is L · Lᵀ, so H⁻¹ = Uᵀ · U where U is L⁻¹ with both orders reversed.
  const Doubles inverse = inverse_of_lower(threads, reversed, n);
  result.u_transposed = make_host_tensor(DType::kF32, {n, n});
  result.importance = make_host_tensor(DType::kF32, {n});
  float* importance = result.importance.view().as<float>();
  for_each_row(threads, n, [&](std::int64_t j) {
    float* to = result.u_transposed.view().row<float>(j);
    for (std::int64_t k = 0; k < n; ++k) {
      to[k] = static_cast<float>(inverse[static_cast<std::size_t>((n - 1 - k) * n + n - 1 - j)]);
    }
    importance[j] = 1.0f / (to[j] * to[j]);
  });
  return result;
}

}  // namespace bl
