#include "nn/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace bl {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

std::vector<double> base_frequencies(double theta, std::int64_t denominator, std::int64_t count) {
  std::vector<double> f(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    f[static_cast<std::size_t>(i)] =
        std::pow(theta, -static_cast<double>(2 * i) / static_cast<double>(denominator));
  }
  return f;
}

void apply_llama3(const RopeSpec& spec, std::vector<double>& f) {
  const auto original = static_cast<double>(spec.original_positions);
  const double low_wavelength = original / spec.low_freq_factor;
  const double high_wavelength = original / spec.high_freq_factor;
  for (double& value : f) {
    const double wavelength = kTwoPi / value;
    if (wavelength > low_wavelength) {
      value /= spec.factor;
    } else if (wavelength >= high_wavelength) {
      const double t = (original / wavelength - spec.low_freq_factor) /
                       (spec.high_freq_factor - spec.low_freq_factor);
      value = (1.0 - t) * value / spec.factor + t * value;
    }
  }
}

// Section 3.2 of the paper: dimensions that rotate more than beta_fast times within the original
// length keep their frequency; those that rotate less than beta_slow times are interpolated.
void apply_yarn(const RopeSpec& spec, std::vector<double>& f) {
  const auto d = static_cast<double>(spec.rotated);
  const auto dimension_of = [&](double turns) {
    return d * std::log(static_cast<double>(spec.original_positions) / (turns * kTwoPi)) /
           (2.0 * std::log(spec.theta));
  };
  double low = dimension_of(spec.beta_fast);
  double high = dimension_of(spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < f.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    f[i] = f[i] / spec.factor * ramp + f[i] * (1.0 - ramp);
  }
}

RopeRow finish(const RopeSpec& spec, const std::vector<double>& f, double extra_scale = 1.0) {
  RopeRow row;
  row.inv_freq.reserve(f.size());
  const double divisor = spec.reversed ? -spec.linear_scale : spec.linear_scale;
  for (double value : f) row.inv_freq.push_back(static_cast<float>(value / divisor));
  row.scale = static_cast<float>(spec.attention_factor * extra_scale);
  return row;
}

std::vector<double> frequencies(const RopeSpec& spec) {
  const std::int64_t half = spec.rotated / 2;
  if (spec.kind == RopeKind::kProportional) {
    std::vector<double> f = base_frequencies(spec.theta, spec.head_dim, half);
    const double kept = std::floor(spec.proportion * static_cast<double>(spec.head_dim) / 2.0);
    for (std::size_t i = 0; i < f.size(); ++i) {
      f[i] = static_cast<double>(i) < kept ? f[i] / spec.factor : 0.0;
    }
    return f;
  }
  std::vector<double> f = base_frequencies(spec.theta, spec.rotated, half);
  if (spec.kind == RopeKind::kLinear) {
    for (double& value : f) value /= spec.factor;
  } else if (spec.kind == RopeKind::kLlama3) {
    apply_llama3(spec, f);
  } else if (spec.kind == RopeKind::kYarn) {
    apply_yarn(spec, f);
  }
  return f;
}

std::vector<double> divided(std::vector<double> f, const std::vector<double>& factors) {
  BL_CHECK(f.size() == factors.size());
  for (std::size_t i = 0; i < f.size(); ++i) f[i] /= factors[i];
  return f;
}

}  // namespace

RopeChoice choice_of(const RopeSpec& spec) {
  if (spec.query_beta != 0.0) return RopeChoice::kByPosition;
  if (spec.kind == RopeKind::kLongRope) return RopeChoice::kByReach;
  if (spec.kind == RopeKind::kDynamic) return RopeChoice::kDynamic;
  return RopeChoice::kFixed;
}

std::vector<RopeRow> fixed_rows(const RopeSpec& spec) {
  std::vector<RopeRow> rows;
  switch (choice_of(spec)) {
    case RopeChoice::kFixed:
      rows.push_back(finish(spec, frequencies(spec)));
      break;
    case RopeChoice::kByReach: {
      const std::vector<double> f = frequencies(spec);
      rows.push_back(finish(spec, divided(f, spec.short_factor)));
      rows.push_back(finish(spec, divided(f, spec.long_factor)));
      break;
    }
    case RopeChoice::kByPosition: {
      const std::vector<double> f = frequencies(spec);
      for (std::int64_t step = 0; step < spec.query_steps; ++step) {
        rows.push_back(
            finish(spec, f, 1.0 + spec.query_beta * std::log1p(static_cast<double>(step))));
      }
      break;
    }
    case RopeChoice::kDynamic:
      break;
  }
  return rows;
}

std::int32_t reach_row(const RopeSpec& spec, std::int64_t reach) {
  return reach > spec.original_positions ? 1 : 0;
}

RopeRow dynamic_row(const RopeSpec& spec, std::int64_t reach) {
  const auto d = static_cast<double>(spec.rotated);
  const auto length = static_cast<double>(std::max(reach, spec.max_positions));
  const double growth =
      spec.factor * length / static_cast<double>(spec.max_positions) - (spec.factor - 1.0);
  const double theta = d > 2.0 ? spec.theta * std::pow(growth, d / (d - 2.0)) : spec.theta;
  return finish(spec, base_frequencies(theta, spec.rotated, spec.rotated / 2));
}

std::int64_t alike_reach(std::span<const RopeSpec> specs, std::int64_t reach) {
  std::int64_t shortest = 0;
  for (const RopeSpec& spec : specs) {
    const RopeChoice choice = choice_of(spec);
    if (choice == RopeChoice::kByReach && reach_row(spec, reach) == 1) {
      shortest = std::max(shortest, spec.original_positions + 1);
    } else if (choice == RopeChoice::kDynamic && reach > spec.max_positions) {
      return reach;
    }
  }
  return shortest;
}

}  // namespace bl
