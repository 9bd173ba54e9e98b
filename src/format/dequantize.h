#pragma once
#include <cstdint>
#include <vector>

#include "format/weight_matrix.h"

namespace bl {

// The order of the rows of a dequantized matrix: the model's input channels, or the slots of the
// file. They differ only for EXL2, by its permutation.
enum class RowOrder { kChannels, kStored };

// The matrix as binary16 bits, [in, out] with padding columns kept, rounded exactly as the formats
// say (docs/formats/exl2.md §9–10, docs/formats/gptq.md §6); dense values are rounded to nearest
// even. This is the reference for every packer.
std::vector<std::uint16_t> dequantize_to_half(const WeightMatrix& matrix,
                                              RowOrder order = RowOrder::kChannels);

}  // namespace bl
