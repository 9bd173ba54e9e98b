#include "rounding_problem.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "tensor/float16.h"

namespace bl::test {
namespace {

// The inverse by Gauss-Jordan elimination.
Doubles inverse_of(Doubles a, std::size_t n) {
  Doubles result(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) result[i * n + i] = 1.0;
  for (std::size_t i = 0; i < n; ++i) {
    const double pivot = a[i * n + i];
    for (std::size_t j = 0; j < n; ++j) {
      a[i * n + j] /= pivot;
      result[i * n + j] /= pivot;
    }
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = a[r * n + i];
      for (std::size_t j = 0; j < n; ++j) {
        a[r * n + j] -= factor * a[i * n + j];
        result[r * n + j] -= factor * result[i * n + j];
      }
    }
  }
  return result;
}

}  // namespace

Problem make_problem(std::int64_t in, std::int64_t out, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Problem p{in, out, zero_matrix(in, in), zero_matrix(out, in)};
  std::vector<float> x(static_cast<std::size_t>(in));
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    float shared = normal(random);
    for (std::int64_t i = 0; i < in; ++i) {
      const float size = 0.2f + static_cast<float>((i * 7) % in) / static_cast<float>(in);
      x[static_cast<std::size_t>(i)] = size * (normal(random) + shared);
      shared = 0.9f * shared + 0.1f * normal(random);
    }
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t j = 0; j < in; ++j) {
        p.sum.view().row<float>(i)[j] +=
            x[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(j)];
      }
    }
  }
  for (std::int64_t c = 0; c < out; ++c) {
    for (std::int64_t i = 0; i < in; ++i) p.weight.view().row<float>(c)[i] = 0.05f * normal(random);
  }
  return p;
}

std::vector<int> naive_codes(const GroupList& groups, const TensorView& h, Doubles w,
                             const std::function<NaiveGrid(std::size_t group)>& grid_of) {
  std::vector<int> codes;
  std::size_t slot = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const NaiveGrid grid = grid_of(g);
    const int last = (1 << groups[g].bits) - 1;
    for (std::int32_t r = 0; r < groups[g].slots; ++r, ++slot) {
      const std::size_t left = w.size() - slot;
      Doubles rest(left * left);
      for (std::size_t i = 0; i < left; ++i) {
        for (std::size_t j = 0; j < left; ++j) {
          rest[i * left + j] = h.row<float>(static_cast<std::int64_t>(slot + i))[slot + j];
        }
      }
      const Doubles inverse = inverse_of(rest, left);
      const double code = std::clamp(std::nearbyint(w[slot] / grid.scale), -1.0 * grid.zero,
                                     1.0 * (last - grid.zero));
      const double value = half_to_float(float_to_half(static_cast<float>(code) * grid.scale));
      codes.push_back(static_cast<int>(code) + grid.zero);
      const double error = (w[slot] - value) / inverse[0];
      for (std::size_t i = 0; i < left; ++i) w[slot + i] -= error * inverse[i];
    }
  }
  return codes;
}

double decoded_loss(const SlotCodes& codes, const std::vector<std::uint16_t>& rows,
                    const TensorView& h, const TensorView& wanted) {
  double loss = 0.0;
  for (std::int64_t c = 0; c < codes.out; ++c) {
    Doubles error;
    for (std::int64_t k = 0; k < codes.in; ++k) {
      const auto at =
          static_cast<std::size_t>(c * codes.in + codes.perm[static_cast<std::size_t>(k)]);
      error.push_back(half_to_float(rows[at]) - wanted.row<float>(k)[c]);
    }
    for (std::int64_t i = 0; i < codes.in; ++i) {
      for (std::int64_t j = 0; j < codes.in; ++j) {
        loss += error[static_cast<std::size_t>(i)] * h.row<float>(i)[j] *
                error[static_cast<std::size_t>(j)];
      }
    }
  }
  return loss;
}

}  // namespace bl::test
