#pragma once
// The loops of GPTQ over the columns of a panel on plain data, compiled once for each instruction
// set. Every operation is rounded on its own, so that all sets give the same bits.

#include <cstdint>

namespace bl {

// The weighted squared error of the columns of one group, [slots][columns], at one scale each.
struct ErrorSum {
  const float* weights = nullptr;  // rows `stride` apart
  std::int64_t stride = 0;
  const float* importance = nullptr;  // [slots]
  std::int64_t slots = 0;
  const float* scale = nullptr;  // [columns]
  const float* zero = nullptr;   // [columns]
  float last = 0.0f;             // the largest code
  std::int64_t columns = 0;      // a multiple of 16
  float* errors = nullptr;       // [columns]
};

// One slot of a panel, rounded to the grids of its columns.
struct SlotRounding {
  const float* wanted = nullptr;  // [columns]
  const float* scale = nullptr;
  const float* zero = nullptr;
  float last = 0.0f;  // the largest code
  float inverse_pivot = 0.0f;
  std::int64_t columns = 0;  // a multiple of 16
  float* values = nullptr;   // what the codes stand for
  std::uint8_t* codes = nullptr;
  float* errors = nullptr;  // (wanted − values) · inverse_pivot
};

// sums[s] = Σ_c errors[c][s]², in the order of c.
struct SquareSum {
  const float* errors = nullptr;  // rows `stride` apart
  std::int64_t stride = 0;
  std::int64_t columns = 0;
  std::int64_t slots = 0;  // a multiple of 8
  double* sums = nullptr;
};

struct RoundingKernels {
  void (*sum_errors)(const ErrorSum& args);
  void (*round_slot)(const SlotRounding& args);
  void (*sum_squares)(const SquareSum& args);
};

// The kernels for the widest instruction set of this processor.
const RoundingKernels& rounding_kernels();

}  // namespace bl
