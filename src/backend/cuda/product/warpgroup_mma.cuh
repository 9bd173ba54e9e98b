#pragma once
// Tensor-core products of a warpgroup: four warps whose number is a multiple of four, together
// (PTX ISA, wgmma; compute capability 9.0 alone, compiled for sm_90a).
//
// d[64×N] += a[64×16] · b[16×N], binary16 in, F32 sums. A is in registers: warp w has its rows
// 16w … 16w + 15 as mma.m16n8k16 has them; so lane 4g + t has in d[4n + c] row 8 (c / 2) + g of
// these, column 8n + 2t + c % 2. B is in shared memory.

#include <cstdint>

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/wgmma.cuh"

namespace bl::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Where B lies: bricks of 8 columns × 8 values of k, a column's values together, 128 bytes; those
// of all columns together, `k_step` bytes from the next ones along k. This is the lower half of a
// descriptor: a step of 16 bytes is 1 more.
__device__ __forceinline__ std::uint32_t brick_descriptor(std::uint32_t shared, int k_step) {
  return (shared & 0x3ffffu) >> 4 | static_cast<std::uint32_t>(k_step) >> 4 << 16;
}
__device__ __forceinline__ std::uint64_t whole_descriptor(std::uint32_t lower) {
  constexpr std::uint64_t kBrick = 128 >> 4;  // to the next one along the columns
  return kBrick << 32 | lower;
}

// add: to d, or instead of what is there.
__device__ __forceinline__ void warpgroup_mma(float (&d)[4], const std::uint32_t (&a)[4],
                                              std::uint32_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %9, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, add, 1, 1, 0;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(whole_descriptor(b)),
        "r"(static_cast<int>(add)));
}

__device__ __forceinline__ void warpgroup_mma(float (&d)[8], const std::uint32_t (&a)[4],
                                              std::uint32_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, add, 1, 1, 0;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(whole_descriptor(b)),
        "r"(static_cast<int>(add)));
}

__device__ __forceinline__ void warpgroup_mma(float (&d)[16], const std::uint32_t (&a)[4],
                                              std::uint32_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, add, 1, 1, "
      "0;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(whole_descriptor(b)),
        "r"(static_cast<int>(add)));
}

__device__ __forceinline__ void warpgroup_mma(float (&d)[32], const std::uint32_t (&a)[4],
                                              std::uint32_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"
      "%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, add, 1, 1, 0;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(whole_descriptor(b)),
        "r"(static_cast<int>(add)));
}

#endif

}  // namespace bl::cuda
