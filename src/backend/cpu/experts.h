#pragma once
#include <cstddef>
#include <cstdint>

namespace bl::cpu {

// Number of pairs (token, expert) that are processed together.
std::int64_t wave_pairs(std::int64_t tokens, std::int64_t per_token);

struct ExpertsShape {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t per_token = 0;
  std::int64_t experts = 0;
  std::int64_t intermediate = 0;
};

// Scratch bytes of the experts op, without those of its products.
std::size_t experts_scratch_bytes(const ExpertsShape& shape);

}  // namespace bl::cpu
