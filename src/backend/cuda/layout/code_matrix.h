#pragma once
// How quantized weights are laid out on the card (docs/adr/0012): for host and device; nothing
// allocates.
//
// A matrix is divided into n_tiles of 16 output columns. An n_tile is one stream along K: k_steps
// of 16 columns × 32 k, 64 · bits bytes each. A k_step holds its codes in the order of operand A of
// mma.m16n8k16 (the matrix's columns are the rows of A): first the words of low bits, then the
// words of the other bits, so that every lane reads aligned words in all widths.
//
// In a k_step lane l = 4g + t (g < 8, t < 4) holds 16 codes, named (h, s, r, e):
//   column 8h + g, k = 16s + 8r + 2t + e.
// The codes of one h have a nibble each, at bit 16e + 8r + 4s of a word, so that one mask extracts
// the pair e = 0, 1 as two subnormal halves. Codes of s = 1 come out multiplied by 16, so their
// activations are stored divided by 16. A nibble holds, highest bit first (A: the code of h = 0; B:
// that of h = 1; ': of lane l + 1, where two lanes share a word):
//   2  B1 B0 A1 A0
//   3  B2 A2 A1 A0, and for two lanes B1' B0' B1 B0
//   4  a word of A, a word of B
//   5  as 4, and for two lanes B4' B4 A4' A4
//   6  as 4, and B5 B4 A5 A4
//   8  words of the four highest bits as in 4, then words of the four lowest bits as in 4

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/host_device.h"

namespace bl::cuda {

inline constexpr int kNTileColumns = 16;
// N_tiles of a matrix with `out` columns.
BL_HD constexpr int n_tiles_of(int out) { return (out + kNTileColumns - 1) / kNTileColumns; }
inline constexpr int kKStepSize = 32;
inline constexpr int kMaxKBlockSteps = 4;

BL_HD constexpr int k_step_bytes(int bits) { return 64 * bits; }

// One code of a lane, named as above.
struct CodeName {
  int h, s, r, e;
};

// Adjacent bits of a code.
struct CodeField {
  int word;   // in the k_step, counted in 32-bit words
  int bit;    // in the word
  int shift;  // in the code
  int bits;
};

// Words of a k_step in front of those with the other bits.
BL_HD constexpr int low_words(int bits) { return bits >= 4 ? 64 : 32; }

// The number of fields into which a code is divided.
BL_HD constexpr int field_count(int bits, const CodeName& n) {
  if (bits == 3) return n.h == 0 ? 1 : 2;
  return bits == 2 || bits == 4 ? 1 : 2;
}
BL_HD constexpr CodeField field_of(int bits, int lane, const CodeName& n, int index) {
  const int nibble = 16 * n.e + 8 * n.r + 4 * n.s;
  const int others = low_words(bits);
  if (bits == 2) return {lane, nibble + 2 * n.h, 0, 2};
  if (bits == 3) {
    if (n.h == 0) return {lane, nibble, 0, 3};
    if (index == 0) return {lane, nibble + 3, 2, 1};
    return {others + lane / 2, nibble + 2 * (lane % 2), 0, 2};
  }
  const int own = lane * 2 + n.h;
  if (bits == 8) return {index == 0 ? own : others + own, nibble, index == 0 ? 4 : 0, 4};
  if (index == 0) return {own, nibble, 0, 4};
  if (bits == 5) return {others + lane / 2, nibble + 2 * n.h + lane % 2, 4, 1};
  return {others + lane, nibble + 2 * n.h, 4, 2};
}

// The inverse of field_of(): the field that begins at bit `bit` of word `word`.
struct PlacedField {
  int lane = 0;
  CodeName name{};
  int shift = 0;  // in the code
  int bits = 0;
};
BL_HD constexpr PlacedField field_at(int bits, int word, int bit) {
  const int others = low_words(bits);
  const bool is_low = word < others;
  const int of = is_low ? word : word - others;
  const int in_nibble = bit % 4;
  PlacedField f{of, {in_nibble / 2, bit / 4 % 2, bit / 8 % 2, bit / 16}, is_low ? 0 : 4, 2};
  if (bits == 2) return f;
  if (bits == 3) {
    f.name.h = is_low && in_nibble < 3 ? 0 : 1;
    f.shift = is_low && in_nibble == 3 ? 2 : 0;
    f.bits = !is_low ? 2 : in_nibble == 3 ? 1 : 3;
    if (!is_low) f.lane = of * 2 + in_nibble / 2;
  } else if (bits == 8 || is_low) {
    f.lane = of / 2;
    f.name.h = of % 2;
    f.shift = bits == 8 && is_low ? 4 : 0;
    f.bits = 4;
  } else if (bits == 5) {
    f.lane = of * 2 + in_nibble % 2;
    f.bits = 1;
  }
  return f;
}

// Code widths that occur together: bit b stands for codes of b bits.
using WidthSet = std::uint32_t;
constexpr WidthSet width_set(std::initializer_list<int> widths) {
  WidthSet set = 0;
  for (const int bits : widths) set |= 1u << bits;
  return set;
}
inline constexpr WidthSet kAllWidths = width_set({2, 3, 4, 5, 6, 8});
BL_HD constexpr bool has_width(WidthSet set, int bits) { return (set >> bits & 1u) != 0; }

BL_HD constexpr int column_in_step(int lane, const CodeName& n) { return 8 * n.h + lane / 4; }
BL_HD constexpr int k_in_step(int lane, const CodeName& n) {
  return 16 * n.s + 8 * n.r + 2 * (lane % 4) + n.e;
}

// Returns where the activation of `k` lies among a token's packed ones, in halves: registers 2s + r
// of lanes t of the k_step's operand B, the four halves of a lane together.
BL_HD constexpr int fragment_offset(int k) {
  const int lane = k % 8 / 2;
  const int reg = k / 16 % 2 * 2 + k / 8 % 2;
  return k / kKStepSize * kKStepSize + lane * 8 + reg * 2 + k % 2;
}

// The largest activation of a row is scaled to [2^9, 2^10): far from overflow of binary16 in sums
// of products with codes, and far from subnormals for whatever matters beside the largest.
inline constexpr int kInputExponent = 9;

enum class ScaleKind : std::uint8_t {
  kExl2,         // 4-bit scale codes a column, a maximum a group, a fixed centre
  kGptq,         // a binary16 scale a column and group, a fixed zero point
  kGptqZeros4,   // as kGptq, with 4-bit zero points, to which `zero` is added
  kGptqZeros16,  // as kGptq, with 16-bit zero points
};

// Up to kMaxKBlockSteps k_steps of one group: what a warp multiplies at a time.
struct KBlock {
  std::uint32_t offset = 0;        // from the n_tile's start, in 64 bytes
  float group_scale = 0;           // s(g) of kExl2 (docs/formats/exl2.md)
  std::uint16_t first_k_step = 0;  // in the n_tile
  std::uint16_t group = 0;
  std::uint8_t bits = 0;
  std::uint8_t k_steps = 0;
  std::uint16_t unused = 0;
};
static_assert(sizeof(KBlock) == 16);

// Bytes of one token's input in gemv_i8 (limb_mma.cuh): a k_step's limbs, the limb scale of a
// k_step, and zeros, which lie in front of k_step 0 if k_blocks are paired.
inline constexpr int kInputKStepBytes = kKStepSize * static_cast<int>(sizeof(float));
inline constexpr int kLimbScaleBytes = 16;
inline constexpr int kInputZeroBytes = 2 * kInputKStepBytes;

// One k_block, or two adjacent ones of equal length and width, in the form that the lanes of
// gemv_i8 need for one token (k_block_pair_mma.cuh): what a warp multiplies at a time where groups
// are short. The host computes once what every warp would compute for every group of n_tiles.
struct alignas(16) KBlockPair {
  std::uint32_t codes = 0;  // bytes from the n_tile's start
  std::uint32_t bits = 0;
  std::uint32_t k_steps = 0;  // of both together
  std::uint32_t unused = 0;
  // [0]: for lanes below 16, whose column of B belongs to the first k_block; [1]: for the others.
  struct Columns {
    // Where the limbs of k_steps 0, 1 and 2 are (3 follows 2), in bytes from k_step 0 of the input;
    // zeros for k_steps of the other k_block.
    std::int32_t k_steps[3] = {};
    float group_scale = 0;  // s(g)
  } columns[2];
  // [0]: for lanes with sums of the first k_block; [1]: of the second.
  struct Sums {
    std::uint32_t limb_scale = 0;  // of its limbs, in bytes from that of k_step 0
    std::uint32_t scales = 0;      // in bytes from those of group 0
    float centre = 0;              // what is subtracted from a code
    std::uint32_t unused = 0;
  } sums[2];
};
static_assert(sizeof(KBlockPair) == 5 * 16);

// K_steps whose activations one warp turns into limbs together (limb_input.cuh): those of one
// k_block, or of several adjacent ones of equal length, a power of two. Between one and
// kMaxKBlockSteps k_steps. Kernels read it as one word.
struct LimbRun {
  std::uint8_t k_steps = 0;
  std::uint8_t k_block_steps = 0;  // of each k_block
  std::uint16_t first_k_step = 0;
};
static_assert(sizeof(LimbRun) == sizeof(std::uint32_t));

// A run of k_blocks that is copied together, up to kMaxCopyBlockSteps k_steps.
struct CopyBlock {
  // Where its codes begin in the n_tile, and their length, both in 64 bytes.
  std::uint32_t offset = 0;
  std::uint16_t size = 0;
  std::uint16_t first_k_step = 0;
  std::uint16_t first_k_block = 0;
  std::uint16_t first_group = 0;
  std::uint8_t k_steps = 0;
  std::uint8_t k_blocks = 0;
  std::uint8_t groups = 0;
  std::uint8_t unused = 0;
};
static_assert(sizeof(CopyBlock) == 16);
inline constexpr int kMaxCopyBlockSteps = 32;

// Bytes of the scales of one n_tile and group. Column 8h + g is half h of entry g: a byte of two
// 4-bit codes, or a word of two halves.
BL_HD constexpr int scale_bytes(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::kExl2:  // codes
      return 8;
    case ScaleKind::kGptq:  // halves
      return 32;
    case ScaleKind::kGptqZeros4:  // halves, codes
      return 40;
    default:  // halves, 16-bit zero points
      return 64;
  }
}
// Bytes from one n_tile's scales to the next; copies need multiples of 16.
BL_HD constexpr std::int64_t scale_stride(ScaleKind kind, std::int64_t groups) {
  return (groups * scale_bytes(kind) + 15) / 16 * 16;
}

// A packed matrix as kernels see it; all pointers are device memory.
struct CodeMatrixView {
  const std::byte* codes = nullptr;        // [n_tiles][n_tile_bytes]
  const std::byte* scales = nullptr;       // [n_tiles][scale_stride]: [groups][scale_bytes]
  const KBlock* k_blocks = nullptr;        // [k_block_count], for every n_tile
  const CopyBlock* copy_blocks = nullptr;  // [copy_block_count], for every n_tile
  const LimbRun* runs = nullptr;           // [run_count]
  // The k_blocks in pairs, or null where k_blocks are long.
  const KBlockPair* pairs = nullptr;        // [pair_count]
  const std::byte* k_step_table = nullptr;  // k_step_table.h; null for a k_split
  // [copy_block_count]: the copy_blocks, with indices and counts of pairs in place of k_blocks.
  const CopyBlock* pair_copy_blocks = nullptr;
  std::int64_t n_tile_bytes = 0;
  std::int32_t n_tiles = 0;
  std::int32_t k_block_count = 0;
  std::int32_t copy_block_count = 0;
  std::int32_t run_count = 0;
  std::int32_t pair_count = 0;
  std::int32_t groups = 0;
  std::int32_t k_steps = 0;  // of an n_tile
  std::int32_t out = 0;      // columns that are written
  std::int32_t zero = 0;     // kGptq: the zero point; kGptqZeros4: added to the 4-bit values
  ScaleKind kind = ScaleKind::kExl2;
};

}  // namespace bl::cuda
