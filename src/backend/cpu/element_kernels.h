#pragma once
// Interface of the element-wise kernels of all instruction sets; plain data (see matmul_kernels.h).

#include <cstdint>

#include "ops/elementwise.h"

namespace bl::cpu {

// One row of NormArgs: [segments, width].
struct NormRow {
  const float* x = nullptr;
  float* out = nullptr;           // may be x
  const float* weight = nullptr;  // or null
  const float* bias = nullptr;    // or null
  std::int64_t segments = 1;
  std::int64_t width = 0;
  // Elements between the weights of one segment and the next: 0 or width.
  std::int64_t parameter_stride = 0;
  NormKind kind = NormKind::kRms;
  float eps = 0.0f;
  bool unit_offset = false;
};

struct EmbedRow {
  const void* row = nullptr;
  DType dtype = DType::kF32;
  float* out = nullptr;
  std::int64_t width = 0;
  float multiplier = 1.0f;
  bool accumulate = false;
};

// Cosines and sines for up to kRopeTablePairs pairs of one row.
inline constexpr int kRopeTablePairs = 128;
struct RopeTable {
  // Neox: cos and sin of each pair. Interleaved: one entry for each element of a pair, with the
  // sine negated for the first.
  float cos[2 * kRopeTablePairs];
  float sin[2 * kRopeTablePairs];
};
struct RopeAngles {
  const float* inv_freq = nullptr;  // frequencies from the first pair on
  int count = 0;                    // number of pairs, at most kRopeTablePairs
  float position = 0.0f;
  float scale = 1.0f;
  bool interleaved = false;
};
// Rotates the pairs of the table in every head of one row.
struct RopeRow {
  float* first = nullptr;   // first element of head 0 that is rotated
  std::int64_t second = 0;  // neox: distance to the other element of the pair
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  int count = 0;  // number of pairs
  bool interleaved = false;
};

struct ElementKernels {
  void (*norm)(const NormRow& row);
  void (*embed)(const EmbedRow& row);
  // `up` may be null; the views in args are not used.
  void (*activate)(const ActivateArgs& args, const float* gate, const float* up, float* out,
                   std::int64_t count);
  void (*add)(float* x, const float* y, float multiplier, std::int64_t count);
  void (*scale)(float* x, float multiplier, float softcap, std::int64_t count);
  void (*clamp)(float* x, float limit, std::int64_t count);
  void (*gate)(float* x, const float* gate, std::int64_t count);  // x *= σ(gate)
  void (*rope_table)(const RopeAngles& angles, RopeTable* table);
  void (*rope)(const RopeTable& table, const RopeRow& row);
};

}  // namespace bl::cpu
