#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/layout/code_pack_plan.h"

namespace bl::cuda {

// A packed matrix in host memory.
struct HostCodes {
  std::span<const std::uint32_t> codes;   // [strips][strip words]
  std::span<const std::uint32_t> scales;  // [strips][scale_stride / 4]
  std::span<const std::int32_t> feature_of_k;
};

// F32 [in, out] in original channel order, rounded to binary16 as the formats say: the proof that
// packing lost nothing.
std::vector<float> unpack_codes(const CodePackPlan& plan, const HostCodes& packed);

}  // namespace bl::cuda
