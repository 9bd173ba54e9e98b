#pragma once
// The inner loops of statistics, factorization and rounding on plain data, compiled once for each
// instruction set.

#include <cstdint>

namespace bl {

// Sums over tokens of the products of two inputs' channels.
struct OuterSum {
  const float* a = nullptr;  // [tokens][rows], rows of it `a_stride` apart
  std::int64_t a_stride = 0;
  const float* b = nullptr;  // [tokens][columns]
  std::int64_t b_stride = 0;
  float* out = nullptr;  // [rows][columns]
  std::int64_t out_stride = 0;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool upper = false;  // only what is on or above the diagonal is wanted
};

// Columns of an OuterSum that are computed together, and tokens whose part of b is copied at a
// time.
inline constexpr std::int64_t kOuterColumns = 48;
inline constexpr std::int64_t kOuterTokens = 128;

// to[r][c] −= Σ_k factors[r][k] · steps[k][c] for `rows` rows of a panel, one k after the other.
struct PanelUpdate {
  float* to = nullptr;  // rows `stride` apart
  std::int64_t stride = 0;
  const float* factors = nullptr;  // rows `factor_stride` apart
  std::int64_t factor_stride = 0;
  std::int64_t rows = 0;
  const float* steps = nullptr;  // rows `step_stride` apart
  std::int64_t step_stride = 0;
  std::int64_t count = 1;    // of steps
  std::int64_t columns = 0;  // a multiple of 16
};

// to[i][j] −= Σ_k factors[i][k] · from[k][j] for i < rows, k < count and j < n.
struct RowsUpdate {
  double* to = nullptr;  // rows `to_stride` apart
  std::int64_t to_stride = 0;
  const double* factors = nullptr;  // rows `factor_stride` apart
  std::int64_t factor_stride = 0;
  const double* from = nullptr;  // rows `from_stride` apart
  std::int64_t from_stride = 0;
  std::int64_t rows = 0;
  std::int64_t count = 0;
  std::int64_t n = 0;
};

// Rows of a RowsUpdate that share what they read of `from`.
inline constexpr std::int64_t kUpdateRows = 4;

struct FittingKernels {
  // out[i][j] += Σ_t a[t][i] · b[t][j] for the columns [begin, begin + kOuterColumns) that there
  // are. `panel`: scratch of kOuterTokens · kOuterColumns floats. An element is added up in the
  // order of tokens.
  void (*add_outer)(const OuterSum& sum, std::int64_t begin, float* panel);
  void (*update_rows)(const RowsUpdate& update);
  void (*update_panel)(const PanelUpdate& update);
};

// The kernels for the widest instruction set of this processor.
const FittingKernels& fitting_kernels();

}  // namespace bl
