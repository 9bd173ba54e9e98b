#pragma once
// What the matmul kernels of every instruction set take and offer: plain data, so that files
// compiled for one instruction set share no inline code with the rest.

#include <cstddef>
#include <cstdint>

namespace bl::cpu {

inline constexpr int kTileColumns = 16;  // output columns of a tile: one 32-bit lane each
inline constexpr int kKStepSize = 32;    // slots are counted in units: 32 codes of b bits, b words
inline constexpr int kQuadsPerUnit = kKStepSize / 4;
inline constexpr int kPairsPerUnit = kKStepSize / 2;
inline constexpr int kMaxSegmentUnits = 8;  // 256 slots: 32-bit sums cannot overflow (README.md)
inline constexpr int kMaxPanelRows = 96;    // rows that share one decoding of a tile

// How a tile stores scales and zero points of a segment; bytes per segment in scale_bytes().
enum class ScaleKind : std::uint8_t {
  kCodes,       // EXL2: sixteen 4-bit codes into a table of 16 per segment; zero = 2^(bits−1)
  kHalf,        // sixteen binary16 scales; one zero point for the matrix
  kHalfZero8,   // … and sixteen bytes: zero point − zero of the matrix
  kHalfZero16,  // … and sixteen 16-bit words
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
// 64 bytes], read front to back by one multiplication.
struct QuantizedView {
  const std::uint8_t* tiles = nullptr;
  std::size_t tile_bytes = 0;
  std::size_t codes_offset = 0;  // of the codes in a tile
  const Band* bands = nullptr;
  int band_count = 0;
  const std::int32_t* units = nullptr;  // [segments] units of 32 slots, 1 … kMaxSegmentUnits
  const float* tables = nullptr;        // [segments][16], kCodes only
  ScaleKind scale_kind = ScaleKind::kCodes;
  std::int32_t zero = 0;    // kHalf: the zero point; kHalfZero*: added to the stored ones
  bool line_pairs = false;  // isa.h: fetches_line_pairs()
};

// Rows of activations as integers of 14 bits: x[slot] ≈ scale(segment) · code. The rows of a unit
// lie together, one cache line each, so that many rows never meet in few sets of a cache.
struct ActivationView {
  const std::int16_t* codes = nullptr;  // [units][row_pitch][32], four slots in order 0, 2, 1, 3
  std::int64_t row_pitch = 0;           // rows from one unit to the next
  const float* scales = nullptr;        // [rows][segments]
  const std::int32_t* sums = nullptr;   // [rows][segments] Σ codes
  std::int64_t segments = 0;
  std::int64_t rows = 0;
};

struct QuantizeArgs {
  const float* x = nullptr;  // [rows][in], rows x_stride apart
  std::int64_t x_stride = 0;
  const std::int32_t* gather = nullptr;  // [slots] channel of each slot, −1: none
  const std::int32_t* units = nullptr;   // [segments]
  std::int64_t segments = 0;
  std::int16_t* codes = nullptr;  // as in ActivationView
  std::int64_t row_pitch = 0;
  float* scales = nullptr;
  std::int32_t* sums = nullptr;
};

// out[r][c] = multiplier · value + bias[c], added to what is there when `accumulate`.
struct OutputView {
  float* out = nullptr;  // [rows][columns], rows `stride` apart
  std::int64_t stride = 0;
  std::int64_t columns = 0;
  const float* bias = nullptr;  // [columns] or null
  float multiplier = 1.0f;
  bool accumulate = false;
};

enum class DenseType : std::uint8_t { kFloat, kHalf, kBFloat };

// Rows of a dense matrix, one an output column.
struct DenseView {
  const std::byte* weight = nullptr;  // [columns][in], any alignment
  DenseType type = DenseType::kFloat;
  std::int64_t in = 0;
};

struct FloatRows {
  const float* x = nullptr;  // [rows][in], rows `stride` apart
  std::int64_t stride = 0;
  std::int64_t rows = 0;
};

// Room that a thread lends to dense_gemv: floats for so many weight rows of `in` rounded up
// to 16.
inline constexpr int kDensePanelColumns = 8;

struct MatmulKernels {
  // Rows [begin, end) of x to integers.
  void (*quantize)(const QuantizeArgs&, std::int64_t begin, std::int64_t end);
  // Tiles [begin, end) times all rows of x (at most kMaxPanelRows). A row's result does not depend
  // on the number of rows.
  void (*quantized_product)(const QuantizedView&, const ActivationView&, const OutputView&,
                            std::int64_t begin, std::int64_t end);
  // Columns [begin, end) times all rows of x; `panel` as kDensePanelColumns says.
  struct DenseRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    float* panel = nullptr;
  };
  void (*dense_gemv)(const DenseView&, const FloatRows&, const OutputView&, const DenseRange&);
  // Columns handled together: ranges should be multiples of it where they can.
  int row_tile_step = 1;  // tiles, for one row
  int tile_step = 1;      // tiles, for more
  int column_step = 1;
};

}  // namespace bl::cpu
