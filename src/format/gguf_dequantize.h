#pragma once
// The exact values of GGUF tensor data. Every product below fits in float's 24 bits (a binary16
// scale times a short integer), so that fusing operations or not cannot change a result.

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/gguf_types.h"
#include "tensor/float16.h"

namespace bl {

// Decodes whole groups of a readable type: `source` holds the groups, `values` receives their
// elements in order. source.size() must be values.size() / group_elements · group_bytes.
void dequantize_gguf(GgufType type, std::span<const std::byte> source, std::span<float> values);

// Rounds to nearest even, as float_to_half() does, in a form that compilers vectorize. Returns
// false if a finite value was too large for binary16 and became infinite.
bool round_to_half(std::span<const float> values, std::span<Half> halves);

}  // namespace bl
