#pragma once
#include <cstdint>
#include <span>

#include "format/gather_array.h"
#include "format/weight_matrix.h"

namespace bl {

// Some input channels of a linear: channel j of the result is channel channels[j] of `matrix`, so
// x[channels] · result is what these channels contribute to x · matrix. The result keeps the bias.
// Codes are moved, never decoded: the result dequantizes to exactly these rows of the whole.
//
// What each format can give exactly; anything else throws kUnsupported, naming the linear:
//  - dense: any channels. Neighbours stay where they are.
//  - GPTQ: aligned runs of 32 / gcd(32, bits) neighbours, whose codes fill whole words (8 channels
//    at 4 bits). A group may be cut anywhere, since each part keeps the scales of its groups; parts
//    of a group may therefore have any size.
//  - EXL2: the storage rows (slots) that hold the channels, in the order of the file. A group keeps
//    its width and its scales, and 32 slots of it are the least that can be stored, so the channels
//    must include a multiple of 32 of each group; none drops the group.
// Repeated channels, or ones out of range, are a bug, and so are codes that a seed stands for.
WeightMatrix select_inputs(const WeightMatrix& matrix, std::span<const std::int32_t> channels,
                           CodeCopy codes = CodeCopy::kCopied);

}  // namespace bl
