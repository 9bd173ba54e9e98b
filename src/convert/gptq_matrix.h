#pragma once
#include "convert/gptq_rounding.h"

namespace bl {

// The tensors of a rounded matrix as GPTQ checkpoints store them (docs/formats/gptq.md §3).
struct GptqTensors {
  std::vector<std::uint32_t> qweight;  // [in · bits / 32, out], channels in their own order
  std::vector<std::uint32_t> qzeros;   // [groups, out · bits / 32]
  std::vector<std::uint16_t> scales;   // [groups, out] of binary16 bits
  std::vector<std::int32_t> g_idx;     // [in]
};
GptqTensors pack_gptq(const GptqRounded& matrix);

// The weights as every reader of GPTQ decodes them: binary16 bits [out, in], the layout of a plain
// linear.
std::vector<std::uint16_t> decoded_rows(const GptqRounded& matrix);

// Bits that the matrix takes in a file: codes, scales, zero points and g_idx.
std::int64_t stored_bits(const GptqRounded& matrix);

}  // namespace bl
