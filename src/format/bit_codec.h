#pragma once
// Bit strings of quantized codes: the one place that knows how EXL2 (docs/formats/exl2.md §8) and
// GPTQ (docs/formats/gptq.md §4) lay codes out. A string is filled from the least significant bit
// of its first word upwards, with `bits` bits per code and no padding; a code may straddle two
// words. The words of a string lie `stride` apart in memory: the number of columns for a string
// that runs down a column, 1 for a string along a row.
//
// These functions are for host and device; none of them allocates or checks.

#include <cstdint>

#include "base/host_device.h"

namespace bl {

// 32 codes of any width take exactly `bits` words. Every format here counts in runs of 32 codes.
inline constexpr int kCodesPerRun = 32;

// The largest code of a width, which is also the mask that isolates one code.
BL_HD constexpr std::uint32_t code_mask(int bits) { return (1u << bits) - 1u; }

// Returns code `index` of a string. The second word is read only if the code straddles.
BL_HD constexpr std::uint32_t read_code(const std::uint32_t* words, std::int64_t stride,
                                        std::int64_t index, int bits) {
  const std::int64_t position = index * bits;
  const std::int64_t word = position / 32;
  const int shift = static_cast<int>(position % 32);
  std::uint32_t value = words[word * stride] >> shift;
  if (shift + bits > 32) value |= words[(word + 1) * stride] << (32 - shift);
  return value & code_mask(bits);
}

// Writes a code into a string whose bits are still zero there.
BL_HD constexpr void write_code(std::uint32_t* words, std::int64_t stride, std::int64_t index,
                                int bits, std::uint32_t code) {
  const std::int64_t position = index * bits;
  const std::int64_t word = position / 32;
  const int shift = static_cast<int>(position % 32);
  words[word * stride] |= code << shift;
  if (shift + bits > 32) words[(word + 1) * stride] |= code >> (32 - shift);
}

// Reads and writes whole runs of 32 codes with the width known at compile time: `Bits` word loads
// and shifts by constants, which compilers unroll.
template <int Bits>
struct BitCodec {
  static_assert(Bits >= 1 && Bits <= 8);
  static constexpr int kBits = Bits;
  static constexpr std::uint32_t kMask = code_mask(Bits);

  // Returns code 0 … 31 of the run whose first word is `words`.
  BL_HD static constexpr std::uint32_t read(const std::uint32_t* words, std::int64_t stride,
                                            int index) {
    return read_code(words, stride, index, Bits);
  }

  // Reads all 32 codes of a run, in order.
  template <class Code>
  BL_HD static constexpr void read_run(const std::uint32_t* words, std::int64_t stride,
                                       Code* codes) {
    std::uint64_t window = 0;  // bits that are not yet handed out, lowest first
    int held = 0;
    const std::uint32_t* next = words;
    for (int i = 0; i < kCodesPerRun; ++i) {
      if (held < Bits) {
        window |= static_cast<std::uint64_t>(*next) << held;
        next += stride;
        held += 32;
      }
      codes[i] = static_cast<Code>(window & kMask);
      window >>= Bits;
      held -= Bits;
    }
  }

  // Writes 32 codes as `Bits` words. Bits of a code above the width are dropped.
  template <class Code>
  BL_HD static constexpr void write_run(const Code* codes, std::uint32_t* words,
                                        std::int64_t stride) {
    std::uint64_t window = 0;
    int held = 0;
    for (int i = 0; i < kCodesPerRun; ++i) {
      window |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(codes[i]) & kMask) << held;
      held += Bits;
      if (held >= 32) {
        *words = static_cast<std::uint32_t>(window);
        words += stride;
        window >>= 32;
        held -= 32;
      }
    }
  }
};

// Calls f.template operator()<Bits>() if `bits` is one of the widths that formats use (2, 3, 4, 5,
// 6, 8) and returns true; for any other width returns false without a call.
template <class F>
constexpr bool visit_code_width(int bits, F&& f) {
  switch (bits) {
    case 2:
      f.template operator()<2>();
      return true;
    case 3:
      f.template operator()<3>();
      return true;
    case 4:
      f.template operator()<4>();
      return true;
    case 5:
      f.template operator()<5>();
      return true;
    case 6:
      f.template operator()<6>();
      return true;
    case 8:
      f.template operator()<8>();
      return true;
    default:
      return false;
  }
}

}  // namespace bl
