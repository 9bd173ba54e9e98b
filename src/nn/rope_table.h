#pragma once
// Rotary position encoding: the frequencies that a config asks for.
//
// Goals: every kind that configs name, as a value (`RopeSpec`) and a pure function of it.
// Non-goals: rotating anything (ops/attention.h), reading configs (model/rope_config.h).
//
// Notation: d is the number of rotated elements of a head, f_i = theta^(−2i/d) for i in [0, d/2).

#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention.h"

namespace bl {

enum class RopeKind : std::uint8_t {
  kDefault,   // f_i
  kLinear,    // f_i / factor (position interpolation)
  kDynamic,   // theta grows once the sequence exceeds max_positions (NTK)
  kLlama3,    // low frequencies are divided by factor, high ones kept, with a ramp between
  kYarn,      // a ramp over dimensions between f_i / factor and f_i (arXiv 2309.00071)
  kLongRope,  // f_i / short_factor_i; f_i / long_factor_i for sequences longer than the original
  kProportional,  // frequencies of the whole head; all but the first share are zero
};

struct RopeSpec {
  RopeKind kind = RopeKind::kDefault;
  RopeStyle style = RopeStyle::kNeox;
  double theta = 10000.0;
  std::int64_t head_dim = 0;
  std::int64_t rotated = 0;  // even, ≤ head_dim
  double factor = 1.0;
  std::int64_t max_positions = 0;       // kDynamic: length from which theta grows
  std::int64_t original_positions = 0;  // kLlama3, kYarn, kLongRope
  double low_freq_factor = 1.0;         // kLlama3
  double high_freq_factor = 4.0;
  double beta_fast = 32.0;  // kYarn
  double beta_slow = 1.0;
  bool truncate = true;
  double attention_factor = 1.0;       // multiplies cos and sin
  std::vector<double> short_factor{};  // kLongRope, [rotated / 2]
  std::vector<double> long_factor{};   // kLongRope, [rotated / 2]
  double proportion = 1.0;             // kProportional
  double linear_scale = 1.0;           // --rope-scale: divides positions
  bool reversed = false;               // rotates in the opposite direction
  // Scales queries by the logarithm of their position: cos and sin are multiplied by 1 + beta ·
  // ln(1 + floor(position / original_positions)). 0: off.
  double query_beta = 0.0;
  std::int64_t query_steps = 0;  // number of distinct values of that floor

  bool operator==(const RopeSpec&) const = default;
};

// How the row of the frequency table is chosen for a token.
enum class RopeChoice : std::uint8_t {
  kFixed,       // always row 0
  kByReach,     // reach_row()
  kDynamic,     // one row per sequence, computed from the length that it may reach
  kByPosition,  // row floor(position / original_positions), for scaled queries
};

struct RopeRow {
  std::vector<float> inv_freq;  // [rotated / 2]
  float scale = 1.0f;           // multiplies cos and sin
};

RopeChoice choice_of(const RopeSpec& spec);

// The rows that do not depend on the sequence: one, two (kByReach), query_steps (kByPosition) or
// none (kDynamic).
std::vector<RopeRow> fixed_rows(const RopeSpec& spec);

// The row for kByReach: 1 if the sequence may grow longer than original_positions, else 0.
std::int32_t reach_row(const RopeSpec& spec, std::int64_t reach);

// The row for kDynamic of a sequence that may grow to `reach` tokens.
RopeRow dynamic_row(const RopeSpec& spec, std::int64_t reach);

// Returns the shortest reach for which all of `specs` rotate exactly as for `reach`, or 0 if the
// reach does not matter. Sequences with equal results can share keys.
std::int64_t alike_reach(std::span<const RopeSpec> specs, std::int64_t reach);

}  // namespace bl
