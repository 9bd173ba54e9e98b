#pragma once
// Values that a seed stands for (tensor/seeded_values.h), made in the card's memory.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "tensor/seeded_values.h"

namespace bl::cuda {

// The first `bytes` bytes, an even number of them, at `to`, aligned to 16 bytes.
void launch_seeded_bytes(const SeededValues& values, std::byte* to, std::size_t bytes,
                         cudaStream_t stream);

// Columns of a matrix of 32-bit words whose bits the values are.
struct SeededColumns {
  std::uint64_t seed = 0;
  std::int64_t rows = 0;
  std::int64_t stored = 0;                // columns of the matrix
  std::int64_t first = 0;                 // those from here on,
  const std::int32_t* columns = nullptr;  // or these [count], on the card
  std::int64_t count = 0;
};
// to [rows, count], on the card.
void launch_seeded_columns(const SeededColumns& columns, std::uint32_t* to, cudaStream_t stream);

}  // namespace bl::cuda
