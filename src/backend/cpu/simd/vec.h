#pragma once
// Sixteen lanes of one instruction set, for files named *_simd.cc.
//
// Goals: kernels are written once, on vectors of 16 × 32 or 32 × 16 bit, whatever the registers
// are; integer results are the same on every instruction set, float results too between those that
// have FMA.
// Non-goals: a general vector library. What no kernel needs is not here.
//
// Every instruction set has the same three types, in namespace bl::cpu::BL_ISA (the build defines
// BL_ISA as the name of the instruction set):
//
//   F32x16  load(p), load_first(p, n) (others 0), store(p), store_first(p, n), splat(x),
//           load_half(bits), load_bfloat(bits), gather(base, index) (a negative index gives 0)
//           + − ×, fma(a, b, c) = a·b + c, max, sum(v) (pairwise: i with i+8, +4, +2, +1),
//           abs_bits(v) = |v| as an integer that orders like it, NaN above all
//   I32x16  load, zero, splat, + −, ×, shift_left<n>, max, sum, max_lane, to_float,
//           round_to_int(F32x16), store_pairs(v, p): 16 words, of four lanes 0, 2, 1, 3
//   I16x32  load, store, splat, splat_pair(p): two words in every lane, shift<n> (right, zeros come
//           in; left when negative), a & mask, a | (b & mask)
//   dot(acc, a, b): acc[l] += a[2l] · b[2l] + a[2l + 1] · b[2l + 1]
//   select_scales(nibbles, table): F32x16 with lane l = table[nibble of lane l]; nibbles as
//           nibble_position() says
//
// Such files may call nothing inline from outside their own namespace but constexpr arithmetic of
// the language: the linker would keep one copy of it, perhaps the one that needs AVX-512, for
// everybody. tests/backend_cpu/simd_objects.cmake holds the object files to that.

#include <cstddef>
#include <cstdint>

#include "backend/cpu/scale_nibbles.h"

namespace bl::cpu::BL_ISA {

// Into the L2 cache, the L1 cache, or the L1 cache and no other core's; any address may be given.
// The empty statements keep calls: GCC takes a function that does nothing but prefetch for one that
// does nothing, and drops it.
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
