#pragma once
#include <cstdint>

#include "ops/fitting.h"

namespace bl::cuda {

// The scales of one group on the card, as RoundResult has them, and what is allowed.
struct GroupGrids {
  const GridRules& rules;
  std::uint8_t* column_codes = nullptr;  // [out]
  std::uint16_t* scales = nullptr;       // EXL2: one; GPTQ: [out]
  int bits = 0;
};

}  // namespace bl::cuda
