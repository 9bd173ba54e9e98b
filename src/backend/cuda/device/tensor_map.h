#pragma once
#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace bl::cuda {

// What the copy engine needs to know of [count][dim] binary16, to copy boxes of `box_rows` rows ×
// 64 elements into shared memory, swizzled over 128 bytes (PTX ISA, cp.async.bulk.tensor).
CUtensorMap half_rows_map(const std::byte* rows, int dim, std::int64_t count, int box_rows);

}  // namespace bl::cuda
