#pragma once
// Interface of the matmul kernels of all instruction sets; plain data, so that files compiled for
// one instruction set share no inline code with the rest.

#include <cstddef>
#include <cstdint>

namespace bl::cpu {

inline constexpr int kTileColumns = 16;  // output columns per tile, one 32-bit lane each
inline constexpr int kUnitSlots = 32;    // slots per unit; 32 codes of b bits are b 32-bit words
inline constexpr int kQuadsPerUnit = kUnitSlots / 4;
inline constexpr int kPairsPerUnit = kUnitSlots / 2;
// 256 slots, so that 32-bit sums cannot overflow (README.md).
inline constexpr int kMaxSegmentUnits = 8;
inline constexpr int kMaxPanelRows = 96;  // rows that share one decoding of a tile

// How a tile stores the scales and zero points of a segment; scale_bytes() is their size.
enum class ScaleKind : std::uint8_t {
  kCodes,       // EXL2: sixteen 4-bit indices into the segment's table of 16; zero = 2^(bits−1)
  kHalf,        // sixteen binary16 scales; one zero point for the matrix
  kHalfZero8,   // also sixteen bytes: zero point − the matrix's `zero`
  kHalfZero16,  // also sixteen 16-bit words: the same difference
};

constexpr std::size_t scale_bytes(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::kCodes:
      return 8;
    case ScaleKind::kHalf:
      return 32;
    case ScaleKind::kHalfZero8:
      return 48;
    case ScaleKind::kHalfZero16:
      return 64;
  }
  return 0;
}

// Consecutive segments of one bit width.
struct Band {
  int bits = 0;
  int first_segment = 0;
  int segments = 0;
};

// A packed matrix. A tile is [scales: segments × scale_bytes, padded to 64][codes: units × bits ×
// 64 bytes]; a multiplication reads it front to back.
struct QuantizedView {
  const std::uint8_t* tiles = nullptr;
  std::size_t tile_bytes = 0;
  std::size_t codes_offset = 0;  // offset of the codes in a tile
  const Band* bands = nullptr;
  int band_count = 0;
  const std::int32_t* units = nullptr;  // [segments]: units of 32 slots, 1 … kMaxSegmentUnits
  const float* tables = nullptr;        // [segments][16], kCodes only
  ScaleKind scale_kind = ScaleKind::kCodes;
  std::int32_t zero = 0;    // kHalf: the zero point; kHalfZero*: offset of the stored ones
  bool line_pairs = false;  // fetches_line_pairs() of isa.h
};

// Rows of activations as 14-bit integers: x[slot] ≈ scale(segment) · code. The rows of a unit are
// adjacent, one cache line each, so that many rows do not compete for few sets of a cache.
struct ActivationView {
  // [units][row_pitch][32]; every four slots in the order 0, 2, 1, 3.
  const std::int16_t* codes = nullptr;
  std::int64_t row_pitch = 0;          // number of rows from one unit to the next
  const float* scales = nullptr;       // [rows][segments]
  const std::int32_t* sums = nullptr;  // [rows][segments] Σ codes
  std::int64_t segments = 0;
  std::int64_t rows = 0;
};

struct QuantizeArgs {
  const float* x = nullptr;  // [rows][in], row stride x_stride
  std::int64_t x_stride = 0;
  const std::int32_t* gather = nullptr;  // [slots]: channel of each slot; −1: none
  const std::int32_t* units = nullptr;   // [segments]
  std::int64_t segments = 0;
  std::int16_t* codes = nullptr;  // output, as in ActivationView
  std::int64_t row_pitch = 0;
  float* scales = nullptr;
  std::int32_t* sums = nullptr;
};

// out[r][c] = multiplier · value + bias[c], added to the old value if `accumulate`.
struct OutputView {
  float* out = nullptr;  // [rows][columns], row stride `stride`
  std::int64_t stride = 0;
  std::int64_t columns = 0;
  const float* bias = nullptr;  // [columns] or null
  float multiplier = 1.0f;
  bool accumulate = false;
};

enum class DenseType : std::uint8_t { kFloat, kHalf, kBFloat };

// The rows of a dense matrix, one per output column.
struct DenseView {
  const std::byte* weight = nullptr;  // [columns][in], any alignment
  DenseType type = DenseType::kFloat;
  std::int64_t in = 0;
};

struct FloatRows {
  const float* x = nullptr;  // [rows][in], row stride `stride`
  std::int64_t stride = 0;
  std::int64_t rows = 0;
};

// A thread's scratch for matmul_dense(): floats for this many weight rows of `in` rounded up to
// 16.
inline constexpr int kDensePanelColumns = 8;

struct MatmulKernels {
  // Quantizes rows [begin, end) of x to integers.
  void (*quantize)(const QuantizeArgs&, std::int64_t begin, std::int64_t end);
  // Multiplies tiles [begin, end) with all rows of x (at most kMaxPanelRows). A row's result does
  // not depend on the number of rows.
  void (*quantized_product)(const QuantizedView&, const ActivationView&, const OutputView&,
                            std::int64_t begin, std::int64_t end);
  // Multiplies columns [begin, end) with all rows of x. `panel` is the scratch of
  // kDensePanelColumns.
  struct DenseRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    float* panel = nullptr;
  };
  void (*matmul_dense)(const DenseView&, const FloatRows&, const OutputView&, const DenseRange&);
  // How many tiles or columns are processed together; ranges should be multiples of that if
  // possible.
  int row_tile_step = 1;  // tiles, for a single row
  int tile_step = 1;      // tiles, for several rows
  int column_step = 1;
};

}  // namespace bl::cpu
