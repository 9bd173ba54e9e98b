#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/layout/code_pack_plan.h"

namespace bl::cuda {

// A packed matrix in host memory.
struct HostCodes {
  std::span<const std::uint32_t> codes;   // [n_tiles][words of an n_tile]
  std::span<const std::uint32_t> scales;  // [n_tiles][scale_stride / 4]
  std::span<const std::int32_t> feature_of_k;
};

// Returns F32 [in, out] in the original order of features, rounded to binary16 as the formats say;
// it proves that packing lost nothing.
std::vector<float> unpack_codes(const CodePackPlan& plan, const HostCodes& packed);

}  // namespace bl::cuda
