// Products of dense matrices, stored as one row per output column, and rows of floats. Dot products
// have 16 running sums for one row and for many, so results agree to the bit whatever the batch is.

#include "backend/cpu/quantized_simd.h"

namespace bl::cpu::BL_ISA {
namespace {

struct FloatType {
  static constexpr int kBytes = 4;
  static F32x16 load(const std::byte* p) { return F32x16::load(reinterpret_cast<const float*>(p)); }
  static F32x16 load_first(const std::byte* p, int n) {
    return F32x16::load_first(reinterpret_cast<const float*>(p), n);
  }
};
struct HalfType {
  static constexpr int kBytes = 2;
  static F32x16 load(const std::byte* p) { return F32x16::load_half(p); }
  static F32x16 load_first(const std::byte* p, int n) { return F32x16::load_half_first(p, n); }
};
struct BFloatType {
  static constexpr int kBytes = 2;
  static F32x16 load(const std::byte* p) { return F32x16::load_bfloat(p); }
  static F32x16 load_first(const std::byte* p, int n) { return F32x16::load_bfloat_first(p, n); }
};

// The weight rows that a block reads: in the matrix, or widened in the panel.
struct WeightRows {
  const std::byte* first = nullptr;  // row of the block's first column
  std::int64_t stride = 0;           // in bytes
  // The weights that follow these in the matrix; prefetched along with the first rows of x, because
  // hardware detects several short streams too late. Null: nothing.
  const std::byte* next = nullptr;
  int next_step = 0;  // bytes to prefetch for every sixteen weights of a row
};

// Writes Count columns of a row.
template <int Count>
[[gnu::always_inline]] inline void write_values(const OutputView& output, std::int64_t row,
                                                std::int64_t column, const float* sums) {
  float* out = output.out + row * output.stride + column;
  float values[Count];
  for (int i = 0; i < Count; ++i) values[i] = sums[i] * output.multiplier;
  if (output.bias != nullptr) {
    for (int i = 0; i < Count; ++i) values[i] += output.bias[column + i];
  }
  if (output.accumulate) {
    for (int i = 0; i < Count; ++i) values[i] = out[i] + values[i];
  }
  for (int i = 0; i < Count; ++i) out[i] = values[i];
}

struct BlockPlace {
  std::int64_t row = 0;
  std::int64_t column = 0;
};

// Adds up the running sums of a block and writes them. All loops are unrolled: a sum whose place is
// not known at compile time would keep all of them in memory.
template <int Rows, int Columns>
[[gnu::always_inline]] inline void write_block(const F32x16 (&sums)[Rows][Columns],
                                               const OutputView& out, const BlockPlace& place) {
  constexpr int kFours = Rows % 2 == 0 ? Columns / 4 * 4 : 0;  // columns that go four at a time
  constexpr int kTwos = Rows % 2 == 0 ? Columns / 2 * 2 : 0;   // columns that go two at a time
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kFours; c += 4) {
      float four[4];
      sum_four(sums[r][c], sums[r][c + 1], sums[r][c + 2], sums[r][c + 3], four);
      write_values<4>(out, place.row + r, place.column + c, four);
    }
#pragma GCC unroll 8
    for (int c = kTwos; c < Columns; ++c) {
      const float one = sum(sums[r][c]);
      write_values<1>(out, place.row + r, place.column + c, &one);
    }
  }
#pragma GCC unroll 8
  for (int c = kFours; c < kTwos; c += 2) {
#pragma GCC unroll 8
    for (int r = 0; r + 1 < Rows; r += 2) {
      float four[4];
      sum_four(sums[r][c], sums[r][c + 1], sums[r + 1][c], sums[r + 1][c + 1], four);
      write_values<2>(out, place.row + r, place.column + c, four);
      write_values<2>(out, place.row + r + 1, place.column + c, four + 2);
    }
  }
}

// Computes Rows × Columns dot products of length `in`.
template <class Type, int Rows, int Columns>
inline void dot_block(const WeightRows& w, std::int64_t in, const FloatRows& x,
                      const OutputView& out, const BlockPlace& place) {
  F32x16 sums[Rows][Columns];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) sums[r][c] = F32x16::splat(0.0f);
  }
  const float* x_row = x.x + place.row * x.stride;
  std::int64_t k = 0;
  for (const std::byte* next = w.next; k + 16 <= in; k += 16) {
    if (next != nullptr) {
      for (int i = 0; i < w.next_step; i += 64) prefetch(next + i);
      next += w.next_step;
    }
    F32x16 xs[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) xs[r] = F32x16::load(x_row + r * x.stride + k);
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) {
      const F32x16 wc = Type::load(w.first + c * w.stride + k * Type::kBytes);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) sums[r][c] = fma(xs[r], wc, sums[r][c]);
    }
  }
  if (k < in) {
    const int left = static_cast<int>(in - k);
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) {
      const F32x16 wc = Type::load_first(w.first + c * w.stride + k * Type::kBytes, left);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        sums[r][c] = fma(F32x16::load_first(x_row + r * x.stride + k, left), wc, sums[r][c]);
      }
    }
  }
  write_block(sums, out, place);
}

// Multiplies `Columns` columns with all rows of x.
template <class Type, int Columns>
inline void column_block(WeightRows w, std::int64_t in, const FloatRows& x, const OutputView& out,
                         std::int64_t column) {
  std::int64_t row = 0;
  for (; row + kDenseRows <= x.rows; row += kDenseRows) {
    dot_block<Type, kDenseRows, Columns>(w, in, x, out, {row, column});
    w.next = nullptr;
  }
  for (; row < x.rows; ++row) {
    dot_block<Type, 1, Columns>(w, in, x, out, {row, column});
    w.next = nullptr;
  }
}

// WeightRows::next_step for a block of kDenseColumns columns.
template <class Type>
constexpr int kNextStep = 16 * kDenseColumns* Type::kBytes;

template <class Type>
void widen_row(const std::byte* from, std::int64_t in, float* to) {
  std::int64_t k = 0;
  for (; k + 16 <= in; k += 16) Type::load(from + k * Type::kBytes).store(to + k);
  if (k < in) {
    Type::load_first(from + k * Type::kBytes, static_cast<int>(in - k)).store(to + k);
  }
}

// Many rows of x read the weights many times, so widen the weights to floats once.
template <class Type>
void many_rows(const DenseView& w, const FloatRows& x, const OutputView& out,
               const MatmulKernels::DenseRange& range) {
  const std::int64_t width = (w.in + 15) / 16 * 16;
  const std::int64_t row_bytes = w.in * Type::kBytes;
  WeightRows panel{reinterpret_cast<const std::byte*>(range.panel), width * 4, nullptr,
                   kNextStep<Type>};
  std::int64_t column = range.begin;
  for (; column + kDenseColumns <= range.end; column += kDenseColumns) {
    for (int c = 0; c < kDenseColumns; ++c) {
      widen_row<Type>(w.weight + (column + c) * row_bytes, w.in, range.panel + c * width);
    }
    panel.next = w.weight + (column + kDenseColumns) * row_bytes;
    column_block<FloatType, kDenseColumns>(panel, w.in, x, out, column);
  }
  for (; column < range.end; ++column) {
    const WeightRows row{w.weight + column * row_bytes, row_bytes, nullptr, 0};
    column_block<Type, 1>(row, w.in, x, out, column);
  }
}

template <class Type>
void few_rows(const DenseView& w, const FloatRows& x, const OutputView& out,
              const MatmulKernels::DenseRange& range) {
  const std::int64_t row_bytes = w.in * Type::kBytes;
  std::int64_t column = range.begin;
  for (; column + kDenseColumns <= range.end; column += kDenseColumns) {
    const std::byte* first = w.weight + column * row_bytes;
    const WeightRows rows{first, row_bytes, first + kDenseColumns * row_bytes, kNextStep<Type>};
    column_block<Type, kDenseColumns>(rows, w.in, x, out, column);
  }
  for (; column < range.end; ++column) {
    const WeightRows row{w.weight + column * row_bytes, row_bytes, nullptr, 0};
    column_block<Type, 1>(row, w.in, x, out, column);
  }
}

template <class Type>
void product(const DenseView& w, const FloatRows& x, const OutputView& out,
             const MatmulKernels::DenseRange& range) {
  if (x.rows > 2 * kDenseRows && Type::kBytes != 4) return many_rows<Type>(w, x, out, range);
  few_rows<Type>(w, x, out, range);
}

}  // namespace

void matmul_dense(const DenseView& w, const FloatRows& x, const OutputView& out,
                  const MatmulKernels::DenseRange& range) {
  switch (w.type) {
    case DenseType::kFloat:
      return product<FloatType>(w, x, out, range);
    case DenseType::kHalf:
      return product<HalfType>(w, x, out, range);
    case DenseType::kBFloat:
      return product<BFloatType>(w, x, out, range);
  }
}

}  // namespace bl::cpu::BL_ISA
