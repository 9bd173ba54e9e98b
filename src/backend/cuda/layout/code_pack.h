#pragma once
// Packs one word of a matrix from the file's codes, and unpacks it: for host and device alike, so
// that the host can prove what the card does.

#include <cstdint>

#include "backend/cuda/layout/code_matrix.h"
#include "format/bit_codec.h"

namespace bl::cuda {

// The file's codes. EXL2: `word_of_k_step`, with the codes of a k_step in order; GPTQ:
// `feature_of_k`.
struct CodeSource {
  const std::uint32_t* words = nullptr;          // [word rows, stored_out]
  const std::int32_t* feature_of_k = nullptr;    // GPTQ: [k_steps · 32]
  const std::int32_t* word_of_k_step = nullptr;  // EXL2: [k_steps], else null
  std::int64_t stored_out = 0;
};

BL_HD inline std::uint32_t source_code(const CodeSource& source, std::int64_t k_step, int bits,
                                       int k, std::int64_t column) {
  if (column >= source.stored_out) return 0;
  if (source.word_of_k_step != nullptr) {
    const std::uint32_t* words =
        source.words + std::int64_t{source.word_of_k_step[k_step]} * source.stored_out + column;
    return read_code(words, source.stored_out, k, bits);
  }
  const std::int32_t feature = source.feature_of_k[k_step * kKStepSize + k];
  if (feature < 0) return 0;
  return read_code(source.words + column, source.stored_out, feature, bits);
}

// Returns word `word` (of 16 · bits) of a k_step. The code of k and column c is codes[k · stride +
// c].
BL_HD inline std::uint32_t packed_word(const std::uint8_t* codes, int stride, int bits, int word) {
  std::uint32_t value = 0;
  for (int bit = 0; bit < 32;) {
    const PlacedField field = field_at(bits, word, bit);
    const int k = k_in_step(field.lane, field.name);
    const std::uint32_t code = codes[k * stride + column_in_step(field.lane, field.name)];
    value |= (code >> field.shift & code_mask(field.bits)) << bit;
    bit += field.bits;
  }
  return value;
}

// Returns the code of k and a column in a packed k_step.
BL_HD inline std::uint32_t unpacked_code(const std::uint32_t* k_step_words, int bits, int k,
                                         int column) {
  const int lane = column % 8 * 4 + k % 8 / 2;
  const CodeName name{column / 8, k / 16, k / 8 % 2, k % 2};
  std::uint32_t code = 0;
  for (int i = 0; i < field_count(bits, name); ++i) {
    const CodeField field = field_of(bits, lane, name, i);
    code |= (k_step_words[field.word] >> field.bit & code_mask(field.bits)) << field.shift;
  }
  return code;
}

// The file's scales.
struct ScaleSource {
  const std::uint32_t* scale_codes = nullptr;  // EXL2: [groups, stored_out / 8]
  const std::uint16_t* scales = nullptr;       // GPTQ: [groups, stored_out] binary16
  const std::uint16_t* zeros = nullptr;        // GPTQ: [groups, stored_out]
  std::int64_t stored_out = 0;
  std::int32_t zero = 0;  // subtracted from 4-bit zero points
};

// Returns word `word` (of scale_bytes / 4) of the scales of one n_tile and group.
BL_HD inline std::uint32_t packed_scale_word(const ScaleSource& source, ScaleKind kind,
                                             std::int64_t group, std::int64_t first_column,
                                             int word) {
  constexpr int kHalfWords = kNTileColumns / 2;
  const std::int64_t row = group * source.stored_out;
  std::uint32_t value = 0;
  if (kind == ScaleKind::kExl2 || (kind == ScaleKind::kGptqZeros4 && word >= kHalfWords)) {
    for (int i = 0; i < 8; ++i) {  // code h of entry g
      const int g = word % 2 * 4 + i / 2;
      const std::int64_t column = first_column + 8 * (i % 2) + g;
      if (column >= source.stored_out) continue;
      const std::uint32_t code =
          kind == ScaleKind::kExl2
              ? source.scale_codes[(row + column) / 8] >> (4 * (column % 8)) & 15u
              : static_cast<std::uint32_t>(source.zeros[row + column] - source.zero);
      value |= code << (4 * i);
    }
    return value;
  }
  const std::uint16_t* halves = word < kHalfWords ? source.scales : source.zeros;
  for (int h = 0; h < 2; ++h) {
    const std::int64_t column = first_column + 8 * h + word % kHalfWords;
    if (column < source.stored_out) value |= std::uint32_t{halves[row + column]} << (16 * h);
  }
  return value;
}

// The packed scale and zero point of a column: EXL2's scale code, or binary16 bits and the zero
// point without CodeMatrixView::zero.
struct PackedScale {
  std::uint32_t scale = 0;
  std::uint32_t zero = 0;
};
BL_HD inline PackedScale unpacked_scale(const std::uint32_t* words, ScaleKind kind, int column) {
  constexpr int kHalfWords = kNTileColumns / 2;
  const int g = column % 8;
  const int h = column / 8;
  const auto code = [&](int first) { return words[first + g / 4] >> (g % 4 * 8 + 4 * h) & 15u; };
  const auto half = [&](int first) { return words[first + g] >> (16 * h) & 0xffffu; };
  switch (kind) {
    case ScaleKind::kExl2:
      return {code(0), 0};
    case ScaleKind::kGptq:
      return {half(0), 0};
    case ScaleKind::kGptqZeros4:
      return {half(0), code(kHalfWords)};
    default:
      return {half(0), half(kHalfWords)};
  }
}

}  // namespace bl::cuda
