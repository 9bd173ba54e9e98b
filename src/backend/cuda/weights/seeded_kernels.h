#pragma once
// Seeded values (tensor/seeded_values.h), generated in the card's memory.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "tensor/seeded_values.h"

namespace bl::cuda {

// Writes the first `bytes` bytes, an even number, to `to`, which is 16-byte aligned.
void launch_seeded_bytes(const SeededValues& values, std::byte* to, std::size_t bytes,
                         cudaStream_t stream);

// Columns of a matrix of 32-bit words, whose bits are the seeded values.
struct SeededColumns {
  std::uint64_t seed = 0;
  std::int64_t rows = 0;
  std::int64_t stored = 0;                // columns of the matrix
  std::int64_t first = 0;                 // columns from here on,
  const std::int32_t* columns = nullptr;  // or these [count], in device memory
  std::int64_t count = 0;
};
// Writes them to `to` [rows, count], in device memory.
void launch_seeded_columns(const SeededColumns& columns, std::uint32_t* to, cudaStream_t stream);

}  // namespace bl::cuda
