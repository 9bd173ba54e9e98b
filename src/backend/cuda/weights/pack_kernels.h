#pragma once
#include <cuda_runtime_api.h>

#include "backend/cuda/layout/code_pack.h"

namespace bl::cuda {

// Where the packing kernels write; all pointers are device memory.
struct PackTarget {
  std::uint32_t* codes = nullptr;                  // [n_tiles][words of an n_tile]
  std::uint32_t* scales = nullptr;                 // [n_tiles][scale_stride / 4]
  const std::int32_t* bits_of_k_step = nullptr;    // [k_steps]
  const std::int64_t* offset_of_k_step = nullptr;  // [k_steps] words from the n_tile's start
  std::int64_t n_tile_words = 0;
  std::int32_t n_tiles = 0;
  std::int32_t k_steps = 0;
  std::int32_t groups = 0;
  ScaleKind kind = ScaleKind::kExl2;
};

void launch_pack_codes(const CodeSource& source, const PackTarget& target, cudaStream_t stream);
void launch_pack_scales(const ScaleSource& source, const PackTarget& target, cudaStream_t stream);

}  // namespace bl::cuda
