#pragma once
// Rotary position encoding: which frequencies a config asks for.
//
// Goals: every kind that configs name, as a value (`RopeSpec`) and a pure function of it.
// Non-goals: rotating anything (ops/attention.h), reading configs (model/rope_config.h).
//
// Notation: d = rotated elements of a head, f_i = theta^(−2i/d) for i in [0, d/2).

#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention.h"

namespace bl {

enum class RopeKind : std::uint8_t {
  kDefault,       // f_i
  kLinear,        // f_i / factor (position interpolation)
  kDynamic,       // theta grows with the length of the sequence beyond max_positions (NTK)
  kLlama3,        // low frequencies divided, high kept, a ramp between
  kYarn,          // ramp over dimensions between f_i / factor and f_i (arXiv 2309.00071)
  kLongRope,      // f_i / short_factor_i, or long_factor_i for sequences longer than original
  kProportional,  // frequencies of the whole head, all but the first share zeroed
};

struct RopeSpec {
  RopeKind kind = RopeKind::kDefault;
  RopeStyle style = RopeStyle::kNeox;
  double theta = 10000.0;
  std::int64_t head_dim = 0;
  std::int64_t rotated = 0;  // even, ≤ head_dim
  double factor = 1.0;
  std::int64_t max_positions = 0;       // kDynamic: where growth begins
  std::int64_t original_positions = 0;  // kLlama3, kYarn, kLongRope
  double low_freq_factor = 1.0;         // kLlama3
  double high_freq_factor = 4.0;
  double beta_fast = 32.0;  // kYarn
  double beta_slow = 1.0;
  bool truncate = true;
  double attention_factor = 1.0;     // multiplies cos and sin
  std::vector<double> short_factor;  // kLongRope, [rotated / 2]
  std::vector<double> long_factor;   // kLongRope, [rotated / 2]
  double proportion = 1.0;           // kProportional
  double linear_scale = 1.0;         // the user's --rope-scale: positions / scale
  bool reversed = false;             // turns the other way
  // Scaling of queries by position (by the log of the position): cos and sin times
  // 1 + beta · ln(1 + floor(position / original_positions)); 0: off.
  double query_beta = 0.0;
  std::int64_t query_steps = 0;  // number of distinct floor values

  bool operator==(const RopeSpec&) const = default;
};

// Which row of the frequency table a token uses.
enum class RopeChoice : std::uint8_t {
  kFixed,       // row 0
  kByReach,     // the row of reach_row()
  kDynamic,     // a row of its own a sequence, from the length it may reach
  kByPosition,  // row floor(position / original_positions): query scaling
};

struct RopeRow {
  std::vector<float> inv_freq;  // [rotated / 2]
  float scale = 1.0f;           // on cos and sin
};

RopeChoice choice_of(const RopeSpec& spec);

// Rows that do not depend on the sequence: one, two (kByReach) or query_steps (kByPosition).
std::vector<RopeRow> fixed_rows(const RopeSpec& spec);

// The row of kByReach: 1 for sequences that may grow longer than original_positions.
std::int32_t reach_row(const RopeSpec& spec, std::int64_t reach);

// The row of kDynamic for a sequence that may reach `reach` tokens.
RopeRow dynamic_row(const RopeSpec& spec, std::int64_t reach);

// The shortest length that a sequence may reach to be rotated by all of these as one of `reach` is,
// 0 where the length does not matter: keys of sequences that agree in it are the same.
std::int64_t alike_reach(std::span<const RopeSpec> specs, std::int64_t reach);

}  // namespace bl
