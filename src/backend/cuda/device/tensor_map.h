#pragma once
#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace bl::cuda {

// Returns the tensor map (TMA descriptor) of a binary16 matrix [count][dim] in device memory, for
// copies of boxes of `box_rows` rows × 64 elements (128 bytes) into shared memory with the 128-byte
// swizzle (PTX ISA, cp.async.bulk.tensor). Throws kUnsupported where the driver is older than
// CUDA 12.
CUtensorMap half_rows_map(const std::byte* rows, int dim, std::int64_t count, int box_rows);

}  // namespace bl::cuda
