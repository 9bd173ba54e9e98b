#pragma once
// One word of a packed matrix from the file's codes, and back: for host and device alike, so that
// the host can prove what the card does.

#include <cstdint>

#include "backend/cuda/code_matrix.h"
#include "format/bit_codec.h"

namespace bl::cuda {

// Where codes come from. EXL2: `word_of_unit` and codes of a unit in order; GPTQ:
// `channel_of_slot`.
struct CodeSource {
  const std::uint32_t* words = nullptr;           // [word rows, stored_out]
  const std::int32_t* channel_of_slot = nullptr;  // GPTQ: [units · 32], else null
  const std::int32_t* word_of_unit = nullptr;     // EXL2: [units], else null
  std::int64_t stored_out = 0;
};

BL_HD inline std::uint32_t source_code(const CodeSource& source, std::int64_t unit, int bits,
                                       int slot, std::int64_t column) {
  if (column >= source.stored_out) return 0;
  if (source.word_of_unit != nullptr) {
    const std::uint32_t* words =
        source.words + std::int64_t{source.word_of_unit[unit]} * source.stored_out + column;
    return read_code(words, source.stored_out, slot, bits);
  }
  const std::int32_t channel = source.channel_of_slot[unit * kUnitSlots + slot];
  if (channel < 0) return 0;
  return read_code(source.words + column, source.stored_out, channel, bits);
}

// Word `word` (of 64 · bits) of a unit whose first column is `column`.
BL_HD inline std::uint32_t packed_word(const CodeSource& source, std::int64_t unit, int bits,
                                       std::int64_t column, int word) {
  const int plane_index = plane_count(bits) == 2 && word * 4 >= plane_of(bits, 1).offset ? 1 : 0;
  const Plane plane = plane_of(bits, plane_index);
  const int in_plane = word - plane.offset / 4;
  const std::uint32_t mask = code_mask(plane.bits);
  std::uint32_t value = 0;
  for (int bit = 0; bit < 32; bit += plane.bits) {
    const PlacedCode at = code_at(plane.bits, in_plane, bit);
    const std::uint32_t code = source_code(source, unit, bits, slot_in_unit(at.lane, at.name),
                                           column + column_in_unit(at.lane, at.name));
    value |= (code >> plane.shift & mask) << bit;
  }
  return value;
}

// The code of a slot and column of a packed unit.
BL_HD inline std::uint32_t unpacked_code(const std::uint32_t* unit_words, int bits, int slot,
                                         int column) {
  const int lane = column % 8 * 4 + slot % 8 / 2;
  const CodeName name{column / 16, column / 8 % 2, slot / 16, slot / 8 % 2, slot % 2};
  std::uint32_t code = 0;
  for (int p = 0; p < plane_count(bits); ++p) {
    const Plane plane = plane_of(bits, p);
    const CodePlace place = place_in_plane(plane.bits, lane, name);
    const std::uint32_t word = unit_words[plane.offset / 4 + place.word];
    code |= (word >> place.bit & code_mask(plane.bits)) << plane.shift;
  }
  return code;
}

// Where file scales come from.
struct ScaleSource {
  const std::uint32_t* scale_codes = nullptr;  // EXL2: [groups, stored_out / 8]
  const std::uint16_t* scales = nullptr;       // GPTQ: [groups, stored_out] binary16
  const std::uint16_t* zeros = nullptr;        // GPTQ: [groups, stored_out]
  std::int64_t stored_out = 0;
  std::int32_t zero = 0;  // subtracted from 4-bit zero points
};

// Word `word` (of scale_bytes / 4) of the scales of one strip and group.
BL_HD inline std::uint32_t packed_scale_word(const ScaleSource& source, ScaleKind kind,
                                             std::int64_t group, std::int64_t first_column,
                                             int word) {
  const auto column_of = [&](int entry) {  // entry 2i + h of run g
    const int g = entry / 8;
    return first_column + 16 * (entry % 8 / 2) + 8 * (entry % 2) + g;
  };
  const std::int64_t row = group * source.stored_out;
  const bool nibbles = kind == ScaleKind::kExl2 || (kind == ScaleKind::kGptqZeros4 && word >= 32);
  std::uint32_t value = 0;
  if (nibbles) {
    const int run = kind == ScaleKind::kExl2 ? word : word - 32;
    for (int e = 0; e < 8; ++e) {
      const std::int64_t column = column_of(run * 8 + e);
      if (column >= source.stored_out) continue;
      const std::uint32_t code =
          kind == ScaleKind::kExl2
              ? source.scale_codes[(row + column) / 8] >> (4 * (column % 8)) & 15u
              : static_cast<std::uint32_t>(source.zeros[row + column] - source.zero);
      value |= code << (4 * e);
    }
    return value;
  }
  const std::uint16_t* halves = word < 32 ? source.scales : source.zeros;
  for (int e = 0; e < 2; ++e) {
    const std::int64_t column = column_of(word % 32 * 2 + e);
    if (column < source.stored_out) value |= std::uint32_t{halves[row + column]} << (16 * e);
  }
  return value;
}

}  // namespace bl::cuda
