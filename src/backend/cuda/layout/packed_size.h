#pragma once
// Device memory that weights need: pure arithmetic on the file's metadata, so that a plan needs no
// card.

#include <cstddef>
#include <cstdint>

#include "format/weight_matrix.h"

namespace bl::cuda {

// Returns the device bytes of a packed matrix of which `out` columns are kept.
std::size_t packed_bytes(const WeightMatrix& matrix, std::int64_t out);
// Returns the elements of a row of its input as kernels read it, including padding.
std::int64_t packed_inputs(const WeightMatrix& matrix);

// What the backend needs for any model: the workspace of cuBLASLt, constants and tables.
inline constexpr std::size_t kBlasWorkspaceBytes = std::size_t{32} << 20;
inline constexpr std::size_t kTableBytes = std::size_t{1} << 20;
// Page-locked host memory through which weights go to the card, and as much device memory.
inline constexpr std::size_t kLapBytes = std::size_t{16} << 20;
inline constexpr int kLaps = 3;
// An allowance for kernels, which the driver loads on first use, and for recorded steps.
inline constexpr std::size_t kDriverBytes = std::size_t{192} << 20;
// An allowance for the driver's own memory of a process, if it has none yet.
inline constexpr std::size_t kContextBytes = std::size_t{512} << 20;

}  // namespace bl::cuda
