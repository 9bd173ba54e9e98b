#pragma once
#include <cstdint>
#include <vector>

#include "format/weight_matrix.h"

namespace bl {

// Order of the rows of a dequantized matrix: the model's input channels, or the slots of the file
// (they differ for EXL2 only, by its permutation).
enum class RowOrder { kChannels, kStored };

// The matrix as binary16 bits [in, out], padding columns kept, rounded exactly as the formats say
// (EXL2 §9–10, GPTQ §6; dense values are rounded to nearest even). The reference for every packer.
std::vector<std::uint16_t> dequantize_to_half(const WeightMatrix& matrix,
                                              RowOrder order = RowOrder::kChannels);

}  // namespace bl
