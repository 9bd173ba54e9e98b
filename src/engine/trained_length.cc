#include "engine/trained_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace bl {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::int64_t stretched(std::int64_t tokens, double factor) {
  return static_cast<std::int64_t>(std::floor(static_cast<double>(tokens) * factor));
}

// The length that one rotary encoding is made for. Configs differ in whether max_positions counts
// the stretched length already, so the longer one counts.
std::int64_t length_of(const RopeSpec& rope, std::int64_t max_positions) {
  std::int64_t length = max_positions;
  switch (rope.kind) {
    case RopeKind::kDynamic:
      return kUnlimited;
    case RopeKind::kLlama3:
    case RopeKind::kYarn:
      length = std::max(length, stretched(rope.original_positions, rope.factor));
      break;
    case RopeKind::kDefault:
    case RopeKind::kLinear:
    case RopeKind::kLongRope:
    case RopeKind::kProportional:
      break;
  }
  return stretched(length, std::max(1.0, rope.linear_scale));
}

}  // namespace

std::int64_t trained_length(const ModelSpec& spec, const SpecOptions& options) {
  if (options.rope_alpha > 1 || spec.ropes.empty()) return kUnlimited;
  std::int64_t length = 0;
  for (const RopeSpec& rope : spec.ropes) {
    length = std::max(length, length_of(rope, spec.max_positions));
  }
  return length;
}

std::string rope_advice(const ModelSpec& spec, const SpecOptions& options, std::int64_t tokens) {
  const std::int64_t trained = trained_length(spec, options);
  if (tokens <= trained) return {};
  // One decimal, rounded up.
  const double factor =
      std::ceil(10.0 * static_cast<double>(tokens) / static_cast<double>(spec.max_positions)) / 10;
  return fmt::format(
      "the model was trained for {} tokens; {} of them need --rope-alpha {} (or --rope-scale {}, "
      "or "
      "\"rope_scaling\" in {})",
      trained, tokens, factor, factor, spec.config_file);
}

}  // namespace bl
