#pragma once
// Values of GGUF tensor data, exact: every product below fits float's 24 bits (a binary16 scale
// times a short integer), so that no compiler's choice of fused operations can change a result.

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/gguf_types.h"
#include "tensor/float16.h"

namespace bl {

// `source` holds whole groups of a readable type; `values` takes what they mean, in order.
// source.size() == values.size() / group_elements · group_bytes.
void dequantize_gguf(GgufType type, std::span<const std::byte> source, std::span<float> values);

// Rounds to nearest even, as float_to_half(), written so that compilers vectorize it. Returns
// false where a finite value was too large for binary16 (it became infinite).
bool round_to_half(std::span<const float> values, std::span<Half> halves);

}  // namespace bl
