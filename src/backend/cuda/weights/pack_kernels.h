#pragma once
#include <cuda_runtime_api.h>

#include "backend/cuda/layout/code_pack.h"

namespace bl::cuda {

// What the packing kernels write; device memory throughout.
struct PackTarget {
  std::uint32_t* codes = nullptr;                  // [strips][strip words]
  std::uint32_t* scales = nullptr;                 // [strips][scale_stride / 4]
  const std::int32_t* bits_of_k_step = nullptr;    // [units]
  const std::int64_t* offset_of_k_step = nullptr;  // [units] words from the strip's start
  std::int64_t n_tile_words = 0;
  std::int32_t n_tiles = 0;
  std::int32_t k_steps = 0;
  std::int32_t groups = 0;
  ScaleKind kind = ScaleKind::kExl2;
};

void launch_pack_codes(const CodeSource& source, const PackTarget& target, cudaStream_t stream);
void launch_pack_scales(const ScaleSource& source, const PackTarget& target, cudaStream_t stream);

}  // namespace bl::cuda
