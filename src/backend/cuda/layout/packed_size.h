#pragma once
// What weights take of a card's memory: pure arithmetic on what the file says, so that a plan needs
// no card.

#include <cstddef>
#include <cstdint>

#include "format/weight_matrix.h"

namespace bl::cuda {

// Device bytes of a packed matrix of which `out` columns are kept.
std::size_t packed_bytes(const WeightMatrix& matrix, std::int64_t out);
// Elements of a row of its input as kernels read it, padding included.
std::int64_t packed_inputs(const WeightMatrix& matrix);

// What the backend takes whatever the model: work space of the library, constants and tables.
inline constexpr std::size_t kBlasWorkspaceBytes = std::size_t{32} << 20;
inline constexpr std::size_t kTableBytes = std::size_t{1} << 20;
// Page-locked memory through which weights go to the card, and as much of the card's.
inline constexpr std::size_t kLapBytes = std::size_t{16} << 20;
inline constexpr int kLaps = 3;
// Kernels that the driver loads as they are first used, and recorded steps: an allowance.
inline constexpr std::size_t kDriverBytes = std::size_t{192} << 20;
// The driver's own memory of a process, where it is not there yet: an allowance.
inline constexpr std::size_t kContextBytes = std::size_t{512} << 20;

}  // namespace bl::cuda
