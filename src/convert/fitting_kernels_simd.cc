// Compiled once for each instruction set, in namespace bl::BL_ISA (CMakeLists.txt). No function
// here may have external linkage outside of that namespace: the linker would keep one copy for all
// sets.

#include "convert/fitting_kernels.h"

namespace bl::BL_ISA {
namespace {

// Vectors of GCC and Clang, in as many registers as the instruction set needs.
constexpr std::int64_t kLanes = 16;
using Floats [[gnu::vector_size(64)]] = float;
using Doubles [[gnu::vector_size(64)]] = double;

// Vectors in memory, which is aligned for their elements alone. No function takes or returns a
// vector by value: how that is done depends on the instruction set.
struct [[gnu::packed, gnu::may_alias]] FloatsInMemory {
  Floats vector;
};
struct [[gnu::packed, gnu::may_alias]] DoublesInMemory {
  Doubles vector;
};
FloatsInMemory& at(float* p) { return *reinterpret_cast<FloatsInMemory*>(p); }
const FloatsInMemory& at(const float* p) { return *reinterpret_cast<const FloatsInMemory*>(p); }
DoublesInMemory& at(double* p) { return *reinterpret_cast<DoublesInMemory*>(p); }
const DoublesInMemory& at(const double* p) { return *reinterpret_cast<const DoublesInMemory*>(p); }

// A register block: rows of a and vectors of b, as many as the instruction set has registers for.
constexpr int kBlockRows = BL_BLOCK_ROWS, kBlockVectors = BL_BLOCK_VECTORS;
static_assert(kOuterColumns % (kBlockVectors * kLanes) == 0);

// Some tokens of an OuterSum, with the columns of b that begin at `column` side by side.
struct Piece {
  const float* a = nullptr;
  const float* panel = nullptr;  // [tokens][kOuterColumns]
  std::int64_t tokens = 0;
  std::int64_t column = 0;
};

void copy_panel(const OuterSum& sum, const Piece& piece, const float* from, float* panel) {
  const std::int64_t left = sum.columns - piece.column;
  const std::int64_t columns = left < kOuterColumns ? left : kOuterColumns;
  for (std::int64_t t = 0; t < piece.tokens; ++t) {
    for (std::int64_t c = 0; c < columns; ++c) panel[c] = from[c];
    for (std::int64_t c = columns; c < kOuterColumns; ++c) panel[c] = 0.0f;
    from += sum.b_stride;
    panel += kOuterColumns;
  }
}

// Adds a register block at `row`, and at `first` of the piece's columns, to the result.
template <int kRows>
void add_block(const OuterSum& sum, const Piece& piece, std::int64_t row, std::int64_t first) {
  constexpr std::int64_t kAhead = 24;  // tokens
  Floats sums[kRows][kBlockVectors] = {};
  const float* a = piece.a + row;
  const float* b = piece.panel + first;
  for (std::int64_t t = 0; t < piece.tokens; ++t, a += sum.a_stride, b += kOuterColumns) {
    // Rows of a lie pages apart, which no hardware prefetches.
    __builtin_prefetch(a + kAhead * sum.a_stride);
    Floats own[kBlockVectors];
    for (int v = 0; v < kBlockVectors; ++v) own[v] = at(b + v * kLanes).vector;
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kBlockVectors; ++v) sums[r][v] += a[r] * own[v];
    }
  }
  const std::int64_t column = piece.column + first;
  float* out = sum.out + row * sum.out_stride + column;
  if (column + kBlockVectors * kLanes <= sum.columns) {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kBlockVectors; ++v) {
        at(out + r * sum.out_stride + v * kLanes).vector += sums[r][v];
      }
    }
    return;
  }
  float values[kRows][kBlockVectors * kLanes];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kBlockVectors; ++v) at(&values[r][v * kLanes]).vector = sums[r][v];
    for (std::int64_t c = 0; column + c < sum.columns; ++c)
      out[r * sum.out_stride + c] += values[r][c];
  }
}

void add_outer(const OuterSum& sum, std::int64_t begin, float* panel) {
  const std::int64_t end = begin + kOuterColumns;
  const std::int64_t rows = sum.upper && end < sum.rows ? end : sum.rows;
  for (std::int64_t token = 0; token < sum.tokens; token += kOuterTokens) {
    const std::int64_t left = sum.tokens - token;
    const Piece piece{sum.a + token * sum.a_stride, panel,
                      left < kOuterTokens ? left : kOuterTokens, begin};
    copy_panel(sum, piece, sum.b + token * sum.b_stride + begin, panel);
    for (std::int64_t first = 0; first < kOuterColumns; first += kBlockVectors * kLanes) {
      std::int64_t row = 0;
      for (; row + kBlockRows <= rows; row += kBlockRows) {
        add_block<kBlockRows>(sum, piece, row, first);
      }
      for (; row < rows; ++row) add_block<1>(sum, piece, row, first);
    }
  }
}

// Updates kRows rows of `to`, kVectors vectors of which stay in registers.
template <int kRows>
void update_some_rows(const RowsUpdate& update, std::int64_t row) {
  constexpr int kVectors = 4, kWidth = 8;
  double* to = update.to + row * update.to_stride;
  const double* factors = update.factors + row * update.factor_stride;
  std::int64_t j = 0;
  for (; j + kVectors * kWidth <= update.n; j += kVectors * kWidth) {
    Doubles sums[kRows][kVectors] = {};
    for (std::int64_t k = 0; k < update.count; ++k) {
      const double* from = update.from + k * update.from_stride + j;
      for (int r = 0; r < kRows; ++r) {
        const double factor = factors[r * update.factor_stride + k];
        for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * at(from + v * kWidth).vector;
      }
    }
    for (int r = 0; r < kRows; ++r) {
      double* own = to + r * update.to_stride + j;
      for (int v = 0; v < kVectors; ++v) {
        at(own + v * kWidth).vector -= sums[r][v];
      }
    }
  }
  for (; j < update.n; ++j) {
    for (int r = 0; r < kRows; ++r) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < update.count; ++k) {
        sum += factors[r * update.factor_stride + k] * update.from[k * update.from_stride + j];
      }
      to[r * update.to_stride + j] -= sum;
    }
  }
}

void update_rows(const RowsUpdate& update) {
  std::int64_t row = 0;
  for (; row + kUpdateRows <= update.rows; row += kUpdateRows) {
    update_some_rows<kUpdateRows>(update, row);
  }
  for (; row < update.rows; ++row) update_some_rows<1>(update, row);
}

// Updates kRows rows of kVectors vectors, which stay in registers meanwhile.
template <int kRows, int kVectors>
void update_panel_block(const PanelUpdate& update, std::int64_t row, std::int64_t column) {
  const float* factors = update.factors + row * update.factor_stride;
  float* to = update.to + row * update.stride + column;
  Floats values[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      values[r][v] = at(to + r * update.stride + v * kLanes).vector;
  }
  const float* step = update.steps + column;
  for (std::int64_t k = 0; k < update.count; ++k, step += update.step_stride) {
    for (int r = 0; r < kRows; ++r) {
      const float factor = factors[r * update.factor_stride + k];
      for (int v = 0; v < kVectors; ++v) values[r][v] -= factor * at(step + v * kLanes).vector;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      at(to + r * update.stride + v * kLanes).vector = values[r][v];
  }
}

template <int kVectors>
void update_panel_columns(const PanelUpdate& update, std::int64_t column) {
  constexpr int kRows = 4;
  std::int64_t row = 0;
  for (; row + kRows <= update.rows; row += kRows) {
    update_panel_block<kRows, kVectors>(update, row, column);
  }
  for (; row < update.rows; ++row) update_panel_block<1, kVectors>(update, row, column);
}

void update_panel(const PanelUpdate& update) {
  constexpr int kWide = kBlockVectors > 1 ? 4 : 1;  // vectors
  std::int64_t column = 0;
  for (; column + kWide * kLanes <= update.columns; column += kWide * kLanes) {
    update_panel_columns<kWide>(update, column);
  }
  for (; column < update.columns; column += kLanes) update_panel_columns<1>(update, column);
}

}  // namespace

extern const FittingKernels kFittingKernels;
const FittingKernels kFittingKernels{add_outer, update_rows, update_panel};

}  // namespace bl::BL_ISA
