#pragma once
// Converts the codes of one unit (32 slots) of one tile (16 columns) to and from the planes that
// kernels read (decode_pair() in quantized_simd.h).

#include <cstdint>

#include "backend/cpu/matmul_kernels.h"

namespace bl::cpu {

// Lane c of quad q holds codes 4q … 4q + 3 of column c, lowest byte first.
struct CodeFragment {
  std::uint32_t quads[kQuadsPerUnit][kTileColumns] = {};

  void set(int slot, int column, std::uint32_t code) {
    quads[slot / 4][column] |= code << (8 * (slot % 4));
  }
  std::uint32_t get(int slot, int column) const {
    return (quads[slot / 4][column] >> (8 * (slot % 4))) & 255u;
  }
};

// A packed unit has 64 · bits bytes.
void write_unit(const CodeFragment& codes, int bits, std::uint8_t* unit);
CodeFragment read_unit(const std::uint8_t* unit, int bits);

}  // namespace bl::cpu
