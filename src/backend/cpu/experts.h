#pragma once
#include <cstddef>
#include <cstdint>

namespace bl::cpu {

// Pairs (token, expert) that are worked on together.
std::int64_t wave_pairs(std::int64_t tokens, std::int64_t per_token);

struct ExpertsShape {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t per_token = 0;
  std::int64_t experts = 0;
  std::int64_t intermediate = 0;
};

// Scratch bytes of the experts op, its products apart.
std::size_t experts_scratch_bytes(const ExpertsShape& shape);

}  // namespace bl::cpu
