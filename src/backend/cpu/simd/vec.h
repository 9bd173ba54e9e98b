#pragma once
// Sixteen lanes of one instruction set, for files named *_simd.cc.
//
// Goals: kernels are written once, on vectors of 16 × 32 or 32 × 16 bits, whatever the registers
// are. Integer results are the same on every instruction set; float results are the same on those
// that have FMA. Non-goal: a general vector library. There is nothing here that no kernel needs.
//
// Every instruction set has the same three types, in namespace bl::cpu::BL_ISA (the build defines
// BL_ISA as the name of the instruction set):
//
//   F32x16  load(p), load_first(p, n) (other lanes 0), store(p), store_first(p, n), splat(x),
//           load_half(bits), load_bfloat(bits), gather(base, index) (a negative index gives 0)
//           + − ×, fma(a, b, c) = a·b + c, max, sum(v) (pairwise: i with i+8, +4, +2, +1),
//           abs_bits(v) = |v| as an integer that orders like it, NaN above all
//   I32x16  load, zero, splat, + −, ×, shift_left<n>, max, sum, max_lane, to_float,
//           round_to_int(F32x16), store_pairs(v, p): 16 words, every four lanes as 0, 2, 1, 3
//   I16x32  load, store, splat, splat_pair(p): two words in every lane, shift<n>: right with zeros
//           shifted in, or left if n is negative, a & mask, a | (b & mask)
//   dot(acc, a, b): acc[l] += a[2l] · b[2l] + a[2l + 1] · b[2l + 1]
//   select_scales(nibbles, table): F32x16 with lane l = table[nibble of lane l]; nibbles are
//           ordered by nibble_position()
//
// These files may call nothing inline from outside their own namespace except constexpr arithmetic
// of the language: the linker would keep one copy of such a function for all, perhaps the one that
// needs AVX-512. tests/backend_cpu/simd_objects.cmake checks the object files for that.

#include <cstddef>
#include <cstdint>

#include "backend/cpu/scale_nibbles.h"

namespace bl::cpu::BL_ISA {

// Prefetch into the L2 cache, into the L1 cache, and into the L1 cache for writing. Any address is
// allowed. The empty asm statements keep the calls: GCC would treat a function that only prefetches
// as one without effect, and drop it.
inline void prefetch(const void* p) {
  __builtin_prefetch(p, 0, 2);
  asm volatile("");
}
inline void prefetch_near(const void* p) {
  __builtin_prefetch(p, 0, 3);
  asm volatile("");
}
inline void prefetch_to_write(const void* p) {
  __builtin_prefetch(p, 1, 3);
  asm volatile("");
}
inline void prefetch_bytes(const std::byte* p, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) prefetch(p + i);
}

}  // namespace bl::cpu::BL_ISA

#if defined(__AVX512F__)
#include "backend/cpu/simd/vec_avx512.h"
#elif defined(__AVX2__)
#include "backend/cpu/simd/vec_avx2.h"
#else
#include "backend/cpu/simd/vec_portable.h"
#endif
