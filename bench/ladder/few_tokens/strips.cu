// Sixteen tokens times packed codes: a warp takes whole strips of 16 columns, or long parts of
// them.
//
// The question: held_product.cu cuts the slots among 16 warps, so that every strip costs each warp
// the way through its code, its scales and a sum over all warps (540 instructions, of which 190 are
// products). Here activations lie in shared memory, a warp goes along a strip (32 chunks of 128
// slots where there are strips for every warp), and codes come straight to registers (16 bytes a
// lane, DEPTH chunks ahead): no ring, no copies to ask for, no sums but one at the end.
// On paper a chunk and strip is 94 instructions (16 products, 40 to decode, 8 loads of activations,
// 3 of codes and scales, 13 for scales and zero points), the tree's 270.
//
// Chunk of 4 bits: two times 16 bytes a lane. Word k of a lane is its A operand of mma.m16n8k16 for
// slots 16k … 16k + 15: bits 4r … 4r + 3 and 16 + 4r … are register r's halves. Registers 1 and 3
// (columns 8 … 15) are read at bits 4 … 7, so that they count 16 times as much.
// A short chunk has 5 bits in four groups of 32 slots: the same, then the fifth bits, 8 bytes a
// lane.
//
// nvcc -std=c++20 -O3 -I src -gencode=arch=compute_90a,code=sm_90a strips.cu -o strips
// ./strips  prints a line a variant: µs a block of llama3-8b (four products), by graph replay.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/mma.cuh"

namespace {

#define CHECK(call)                                                         \
  do {                                                                      \
    const cudaError_t e = (call);                                           \
    if (e != cudaSuccess) {                                                 \
      std::printf("%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
      std::exit(1);                                                         \
    }                                                                       \
  } while (0)

constexpr int kTokens = 16;
constexpr int kSteps = 8;                   // k16 steps of a chunk
constexpr int kChunkX = kSteps * 512 + 64;  // activations of a chunk, then their sums
constexpr int kMostChunks = 36;             // of activations in shared memory
constexpr int kMostWarps = 24;

struct Args {
  const uint4* codes;           // [strip][chunk][2][32]
  const uint2* fifth;           // [strip][short chunk][32]
  const std::uint32_t* scales;  // [strip][chunk][8], halves of columns g and g + 8
  const uint4* short_scales;    // [strip][short chunk][8], of four groups
  const std::byte* x;           // [chunk]: [step][lane] of 16 bytes, then [t] of 16 bytes
  float* out;                   // [part][token][column]
  int chunks;                   // of a strip
  int short_chunks;             // the first ones
  int parts;                    // among CTAs
  int strips;
  int cuts;  // of a part among the warps of a CTA
  int layout;
};

// How codes lie: 16 bytes a lane, a share of the chunks short, or as in the tree, 8 bytes a lane
// and unit of 32 slots.
constexpr int kWhole = 0, kWithShort = 1, kUnits = 2;

enum class Mode { kFull, kNoScales, kNoProducts, kCodesOnly };

#if defined(__CUDA_ARCH__)

__device__ __forceinline__ uint4 load_once(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
__device__ __forceinline__ uint2 load_once(const uint2* from) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(from));
  return v;
}

#endif

template <int Depth, int Strips, int Warps, int Tiles, Mode kMode, int kLayout>
struct Walk {
  struct Ahead {
    uint4 codes[Strips][2];
    std::uint32_t scales[Strips];
  };
  const Args& a;
  const std::byte* x;  // shared: of the part's first chunk
  int lane;
  const uint4* code_at[Strips];
  const std::uint32_t* scale_at[Strips];
  float totals[Strips][Tiles][4];
  std::uint32_t mix = 0;

#if defined(__CUDA_ARCH__)
  // Where the codes and scales of a strip's chunk are.
  __device__ __forceinline__ void go_to(int strip, int chunk) {
#pragma unroll
    for (int s = 0; s < Strips; ++s) {
      const std::int64_t at = static_cast<std::int64_t>(strip + s) * a.chunks + chunk;
      code_at[s] = kLayout == kUnits ? reinterpret_cast<const uint4*>(
                                           reinterpret_cast<const uint2*>(a.codes + at * 64) + lane)
                                     : a.codes + at * 64 + lane;
      scale_at[s] = a.scales + at * 8 + lane / 4;
    }
  }
  // `further`: chunks from there.
  __device__ __forceinline__ void load(Ahead& to, int further) const {
#pragma unroll
    for (int s = 0; s < Strips; ++s) {
      const uint4* from = code_at[s] + further * 64;
      if constexpr (kLayout == kUnits) {
        const auto* units = reinterpret_cast<const uint2*>(from);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint2 a = load_once(units + half * 64);
          const uint2 b = load_once(units + half * 64 + 32);
          to.codes[s][half] = make_uint4(a.x, a.y, b.x, b.y);
        }
      } else {
        to.codes[s][0] = load_once(from);
        to.codes[s][1] = load_once(from + 32);
      }
      if (kMode == Mode::kFull || kMode == Mode::kNoProducts) {
        to.scales[s] = __ldg(scale_at[s] + further * 8);
      }
    }
  }

  __device__ __forceinline__ void clear(float (&sums)[Tiles][4]) const {
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[n][c] = 0.0f;
  }
  __device__ __forceinline__ void begin(float (&sums)[Tiles][4], const float4& minus) const {
    sums[0][0] = minus.x, sums[0][1] = minus.y;
    if constexpr (Tiles == 2) sums[1][0] = minus.z, sums[1][1] = minus.w;
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
      sums[n][2] = 16.0f * sums[n][0], sums[n][3] = 16.0f * sums[n][1];
  }
  __device__ __forceinline__ void add(float (&total)[Tiles][4], const float (&sums)[Tiles][4],
                                      std::uint32_t pair) const {
    const float2 scale = __half22float2(*reinterpret_cast<const __half2*>(&pair));
#pragma unroll
    for (int n = 0; n < Tiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) total[n][c] += (c < 2 ? scale.x : scale.y) * sums[n][c];
  }

  __device__ __forceinline__ static std::uint32_t word(const uint4 (&codes)[2], int k) {
    const uint4& v = codes[k / 4];
    return k % 4 == 0 ? v.x : k % 4 == 1 ? v.y : k % 4 == 2 ? v.z : v.w;
  }
  __device__ __forceinline__ static void decode(std::uint32_t w, std::uint32_t (&r)[4]) {
    const std::uint32_t high = w >> 8;
    r[0] = w & 0x000f000fu;
    r[1] = w & 0x00f000f0u;
    r[2] = high & 0x000f000fu;
    r[3] = high & 0x00f000f0u;
  }

  __device__ __forceinline__ void multiply(const Ahead& from, int chunk) {
    const std::byte* here = x + chunk * kChunkX;
    if constexpr (kMode == Mode::kCodesOnly) {
#pragma unroll
      for (int s = 0; s < Strips; ++s)
#pragma unroll
        for (int k = 0; k < kSteps; ++k) mix ^= word(from.codes[s], k);
      return;
    }
    float sums[Strips][Tiles][4];
    const float4 minus = *reinterpret_cast<const float4*>(here + kSteps * 512 + lane % 4 * 16);
#pragma unroll
    for (int s = 0; s < Strips; ++s) {
      if constexpr (kMode == Mode::kFull) {
        begin(sums[s], minus);
      } else {
        clear(sums[s]);
      }
    }
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const uint4 b = *reinterpret_cast<const uint4*>(here + k * 512 + lane * 16);
#pragma unroll
      for (int s = 0; s < Strips; ++s) {
        std::uint32_t r[4];
        decode(word(from.codes[s], k), r);
        if constexpr (kMode == Mode::kNoProducts) {
          mix ^= r[0] + r[1] + r[2] + r[3] + b.x + b.y + b.z + b.w;
        } else {
          bl::cuda::mma_16x8x16(sums[s][0], r, b.x, b.y);
          if constexpr (Tiles == 2) bl::cuda::mma_16x8x16(sums[s][1], r, b.z, b.w);
        }
      }
    }
#pragma unroll
    for (int s = 0; s < Strips; ++s) {
      add(totals[s], sums[s], kMode == Mode::kFull ? from.scales[s] : 0x3c003c00u);
    }
  }

  // Five bits in groups of 32 slots.
  __device__ __forceinline__ void multiply_short(const Ahead& from, int strip, int chunk) {
    const std::byte* here = x + chunk * kChunkX;
#pragma unroll
    for (int s = 0; s < Strips; ++s) {
      const std::int64_t at = static_cast<std::int64_t>(strip + s) * a.short_chunks + chunk;
      const uint2 fifth = load_once(a.fifth + at * 32 + lane);
      const uint4 scales = __ldg(a.short_scales + at * 8 + lane / 4);
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        float sums[Tiles][4];
        clear(sums);
#pragma unroll
        for (int k = 2 * u; k < 2 * u + 2; ++k) {
          const uint4 b = *reinterpret_cast<const uint4*>(here + k * 512 + lane * 16);
          const std::uint32_t w = word(from.codes[s], k);
          // Bits 4 and 20 of register 0, 8 and 24 of register 1.
          const std::uint32_t h = (k < 4 ? fifth.x : fifth.y) >> (k % 4);
          const std::uint32_t high = w >> 8;
          const std::uint32_t r[4] = {
              ((w & 0x000f000fu) | (h & 0xfff0fff0u)) & 0x001f001fu,
              ((w & 0x00f000f0u) | (h & 0xff0fff0fu)) & 0x01f001f0u,
              ((high & 0x000f000fu) | ((h << 2) & 0xfff0fff0u)) & 0x001f001fu,
              ((high & 0x00f000f0u) | ((h << 2) & 0xff0fff0fu)) & 0x01f001f0u};
          bl::cuda::mma_16x8x16(sums[0], r, b.x, b.y);
          if constexpr (Tiles == 2) bl::cuda::mma_16x8x16(sums[1], r, b.z, b.w);
        }
        add(totals[s], sums, u == 0 ? scales.x : u == 1 ? scales.y : u == 2 ? scales.z : scales.w);
      }
    }
  }
#endif
};

template <int Depth, int Strips, int Warps, int Tiles, Mode kMode, int kLayout>
__global__ __launch_bounds__(Warps * 32, 1) void strips_kernel(const Args a) {
#if defined(__CUDA_ARCH__)
  using Way = Walk<Depth, Strips, Warps, Tiles, kMode, kLayout>;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ std::uint64_t arrived[kMostChunks / 4 + 1];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int part = static_cast<int>(blockIdx.x) % a.parts;
  const int column_cta = static_cast<int>(blockIdx.x) / a.parts;
  const int ctas = static_cast<int>(gridDim.x) / a.parts;
  const int first = a.strips * column_cta / ctas;
  const int last = a.strips * (column_cta + 1) / ctas;
  const int part_chunks = a.chunks / a.parts;
  const int groups = Warps / a.cuts;
  const int group = warp / a.cuts;
  const int begin = part_chunks * (warp % a.cuts) / a.cuts;
  const int end = part_chunks * (warp % a.cuts + 1) / a.cuts;
  Way way{a, shared, static_cast<int>(threadIdx.x) % 32, {}, {}, {}};
  int strip = first + group * Strips;
  const int from_chunk = part * part_chunks;
  typename Way::Ahead ahead[Depth];
  const auto start = [&](int from) {
    way.go_to(from, from_chunk + begin);
#pragma unroll
    for (int d = 0; d < Depth; ++d) {
      if (begin + d < end) way.load(ahead[d], d);
    }
  };
  if (group < groups && strip < last) {
    start(strip);
  }
  if (threadIdx.x == 0) {
    for (int p = 0; p < (part_chunks + 3) / 4; ++p) bl::cuda::barrier_init(&arrived[p], 1);
    bl::cuda::barrier_init_fence();
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (int p = 0; p < (part_chunks + 3) / 4; ++p) {
      const int bytes = min(4, part_chunks - p * 4) * kChunkX;
      bl::cuda::barrier_expect(&arrived[p], bytes);
      bl::cuda::bulk_copy(shared + p * 4 * kChunkX, a.x + (from_chunk + p * 4) * kChunkX, bytes,
                          &arrived[p]);
    }
  }
  __syncthreads();
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  float* room = reinterpret_cast<float*>(shared + part_chunks * kChunkX);
  for (bool again = false; group < groups && strip < last; strip += groups * Strips, again = true) {
    if (again) start(strip);
#pragma unroll
    for (int s = 0; s < Strips; ++s) way.clear(way.totals[s]);
    for (int i = begin; i < end; i += Depth) {
#pragma unroll
      for (int d = 0; d < Depth; ++d) {
        const int chunk = i + d;
        if (chunk >= end) break;
        if (chunk % 4 == 0 || chunk == begin) bl::cuda::barrier_wait(&arrived[chunk / 4], 0);
        if (kLayout == kWithShort && from_chunk + chunk < a.short_chunks) {
          way.multiply_short(ahead[d], strip, chunk);
        } else {
          way.multiply(ahead[d], chunk);
        }
        if (chunk + Depth < end) way.load(ahead[d], Depth + d);
      }
#pragma unroll
      for (int s = 0; s < Strips; ++s) {
        way.code_at[s] += Depth * 64;
        way.scale_at[s] += Depth * 8;
      }
    }
    // [strip − first][cut][lane][8]
#pragma unroll
    for (int s = 0; s < Strips; ++s) {
      float4* to = reinterpret_cast<float4*>(
          room + (((strip + s - first) * a.cuts + warp % a.cuts) * 32 + way.lane) * 8);
      to[0] = make_float4(way.totals[s][0][0], way.totals[s][0][1], way.totals[s][0][2],
                          way.totals[s][0][3]);
      if constexpr (Tiles == 2) {
        to[1] = make_float4(way.totals[s][1][0], way.totals[s][1][1], way.totals[s][1][2],
                            way.totals[s][1][3]);
      }
    }
  }
  __syncthreads();
  if (kMode == Mode::kCodesOnly || kMode == Mode::kNoProducts) {
    if (way.mix == 0x12345678u) a.out[0] = 1.0f;
  }
  const int columns = a.strips * 16;
  for (int i = static_cast<int>(threadIdx.x); i < (last - first) * 256; i += Warps * 32) {
    // Value i % 256 is token i % 16 of column i % 256 / 16.
    const int column = i % 256 / 16;
    const int token = i % 16;
    if (token >= Tiles * 8) continue;
    const int lane = column % 8 * 4 + token % 8 / 2;
    const int place = token / 8 * 4 + column / 8 * 2 + token % 2;
    float sum = 0.0f;
    for (int c = 0; c < a.cuts; ++c) {
      sum += room[((i / 256 * a.cuts + c) * 32 + lane) * 8 + place];
    }
    // Rows g + 8 counted 16 times; a code's unit is 2^-24.
    sum *= column < 8 ? 1.0f : 1.0f / 16;
    a.out[(static_cast<std::int64_t>(part) * kTokens + token) * columns + (first + i / 256) * 16 +
          column] = sum;
  }
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The same by one thread a result, in double.
__global__ void check_kernel(const Args a, double* out) {
  const int column = static_cast<int>(blockIdx.x);
  const int token = static_cast<int>(threadIdx.x);
  const int g = column % 16 % 8;
  const int right = column % 16 / 8;
  const int strip = column / 16;
  double total = 0;
  for (int chunk = 0; chunk < a.chunks; ++chunk) {
    const bool is_short = chunk < a.short_chunks;
    const auto* here = a.x + static_cast<std::int64_t>(chunk) * kChunkX;
    const std::int64_t at = static_cast<std::int64_t>(strip) * a.chunks + chunk;
    for (int slot = 0; slot < 128; ++slot) {
      const int k = slot / 16;
      const int t = slot % 8 / 2;
      const int lane = g * 4 + t;
      const int r = right + slot % 16 / 8 * 2;
      const auto* words = reinterpret_cast<const std::uint32_t*>(a.codes + at * 64);
      const std::uint32_t word = a.layout == kUnits ? words[k / 2 * 64 + lane * 2 + k % 2]
                                                    : words[(k / 4 * 32 + lane) * 4 + k % 4];
      double code = word >> (4 * r + slot % 2 * 16) & 15u;
      std::uint32_t pair = a.scales[at * 8 + g];
      if (is_short) {
        const std::int64_t short_at = static_cast<std::int64_t>(strip) * a.short_chunks + chunk;
        const uint2 fifth = a.fifth[short_at * 32 + lane];
        const std::uint32_t h = (k < 4 ? fifth.x : fifth.y) >> (k % 4);
        const std::uint32_t moved = r >= 2 ? h << 2 : h;
        code += 16.0 * (moved >> ((r % 2 ? 8 : 4) + slot % 2 * 16) & 1u);
        pair = reinterpret_cast<const std::uint32_t*>(a.short_scales + short_at * 8 + g)[slot / 32];
      } else {
        code -= 8;
      }
      const __half2 both = *reinterpret_cast<const __half2*>(&pair);
      const double scale = __half2float(right ? both.y : both.x);
      const int n_lane = token % 8 * 4 + t;
      const auto* b = reinterpret_cast<const __half*>(here + k * 512 + n_lane * 16);
      const double x = __half2float(b[token / 8 * 4 + slot % 16 / 8 * 2 + slot % 2]);
      total += scale * code * x;
    }
  }
  out[static_cast<std::int64_t>(token) * a.strips * 16 + column] = total * exp2(-24.0);
}

__global__ void fill_kernel(std::uint32_t* to, std::int64_t words, std::uint32_t seed) {
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < words; i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    std::uint32_t h = static_cast<std::uint32_t>(i) * 2654435761u + seed;
    h ^= h >> 15, h *= 0x85ebca6bu, h ^= h >> 13, h *= 0xc2b2ae35u, h ^= h >> 16;
    to[i] = h;
  }
}

std::uint16_t half_bits(float value) {
  const __half h = __float2half_rn(value);
  std::uint16_t bits;
  std::memcpy(&bits, &h, 2);
  return bits;
}

template <class T>
T* on_device(const std::vector<T>& from) {
  T* to = nullptr;
  CHECK(cudaMalloc(&to, from.size() * sizeof(T)));
  CHECK(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

struct Shape {
  const char* name;
  int slots, columns, parts, cuts;
  int cuts_of_two;  // where a warp takes two strips
};
constexpr Shape kShapes[] = {{"qkv", 4096, 6144, 1, 5, 8},
                             {"o", 4096, 4096, 1, 8, 16},
                             {"gate_up", 4096, 28672, 1, 1, 2},
                             {"down", 14336, 4096, 4, 2, 4}};
constexpr int kBlocks = 32;

std::vector<std::byte> activations(int chunks, int short_chunks) {
  std::vector<std::byte> x(static_cast<std::size_t>(chunks) * kChunkX);
  std::uint32_t h = 1;
  for (int c = 0; c < chunks; ++c) {
    std::vector<float> value(128 * kTokens);
    for (float& v : value) {
      h = h * 1664525u + 1013904223u;
      v = __half2float(__float2half_rn(static_cast<float>(h >> 16 & 1023u) / 512.0f - 1.0f));
    }
    std::byte* here = x.data() + static_cast<std::size_t>(c) * kChunkX;
    for (int slot = 0; slot < 128; ++slot) {
      for (int token = 0; token < kTokens; ++token) {
        const int lane = token % 8 * 4 + slot % 8 / 2;
        const int place = token / 8 * 4 + slot % 16 / 8 * 2 + slot % 2;
        const std::uint16_t bits = half_bits(value[slot * kTokens + token]);
        std::memcpy(here + slot / 16 * 512 + lane * 16 + place * 2, &bits, 2);
      }
    }
    for (int token = 0; token < kTokens; ++token) {
      double sum = 0;
      for (int slot = 0; slot < 128; ++slot) sum += value[slot * kTokens + token];
      const float minus = c < short_chunks ? 0.0f : static_cast<float>(-8 * sum * std::exp2(-24.0));
      std::memcpy(here + kSteps * 512 + token % 8 / 2 * 16 + token / 8 * 8 + token % 2 * 4, &minus,
                  4);
    }
  }
  return x;
}

struct Product {
  Args args;
  Shape shape;
};

// Blocks share scales, which are few; codes are their own.
std::vector<Product> make_products(int short_share) {
  std::vector<Product> products;
  for (int block = 0; block < kBlocks; ++block) {
    for (std::size_t i = 0; i < std::size(kShapes); ++i) {
      const Shape& shape = kShapes[i];
      Args a{};
      a.chunks = shape.slots / 128;
      a.short_chunks = a.chunks * short_share / 100;
      a.parts = shape.parts;
      a.strips = shape.columns / 16;
      const std::int64_t chunks = static_cast<std::int64_t>(a.strips) * a.chunks;
      uint4* codes = nullptr;
      CHECK(cudaMalloc(&codes, chunks * 1024));
      fill_kernel<<<1024, 256>>>(reinterpret_cast<std::uint32_t*>(codes), chunks * 256,
                                 static_cast<std::uint32_t>(block * 4 + i));
      a.codes = codes;
      const std::int64_t shorts = static_cast<std::int64_t>(a.strips) * a.short_chunks;
      if (shorts > 0) {
        uint2* fifth = nullptr;
        CHECK(cudaMalloc(&fifth, shorts * 256));
        fill_kernel<<<1024, 256>>>(reinterpret_cast<std::uint32_t*>(fifth), shorts * 64, 7u);
        a.fifth = fifth;
      }
      if (block == 0) {
        std::vector<std::uint16_t> scales(static_cast<std::size_t>(chunks) * 16);
        for (std::size_t j = 0; j < scales.size(); ++j) {
          scales[j] = half_bits(0.004f + 0.00001f * static_cast<float>(j * 7919 % 997));
        }
        std::vector<std::uint16_t> short_scales(static_cast<std::size_t>(shorts) * 64 + 8);
        for (std::size_t j = 0; j < short_scales.size(); ++j) {
          short_scales[j] = half_bits(0.003f + 0.00001f * static_cast<float>(j * 6151 % 991));
        }
        a.scales = reinterpret_cast<const std::uint32_t*>(on_device(scales));
        a.short_scales = reinterpret_cast<const uint4*>(on_device(short_scales));
        a.x = on_device(activations(a.chunks, a.short_chunks));
        CHECK(cudaMalloc(&a.out, sizeof(float) * kTokens * shape.columns * shape.parts));
      } else {
        const Args& before = products[i].args;
        a.scales = before.scales, a.short_scales = before.short_scales;
        a.x = before.x, a.out = before.out;
      }
      products.push_back({a, shape});
    }
  }
  return products;
}

template <int Depth, int Strips, int Warps, int Tiles, Mode kMode, int kLayout>
void launch(Product product, cudaStream_t stream) {
  Args& a = product.args;
  a.cuts = Strips == 2 ? product.shape.cuts_of_two : product.shape.cuts;
  if (Warps == 24 && a.cuts > 4) a.cuts = a.cuts == 5 ? 8 : 12;
  auto kernel = strips_kernel<Depth, Strips, Warps, Tiles, kMode, kLayout>;
  const int ctas = 132;
  const int most = (a.strips + ctas / a.parts - 1) / (ctas / a.parts) + 1;
  const int bytes = a.chunks / a.parts * kChunkX + most * a.cuts * 1024;
  static int allowed = 0;
  if (bytes > allowed) {
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    allowed = bytes;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = {static_cast<unsigned>(ctas), 1, 1};
  config.blockDim = {Warps * 32, 1, 1};
  config.dynamicSmemBytes = static_cast<std::size_t>(bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<const Args>(a)));
}

using Launch = void (*)(Product, cudaStream_t);

void check(std::vector<Product> products, Launch run, const char* name, int tokens, int layout) {
  for (std::size_t i = 0; i < std::size(kShapes); ++i) {
    Product& p = products[i];
    p.args.layout = layout;
    const int columns = p.shape.columns;
    CHECK(cudaMemset(p.args.out, 0xff, sizeof(float) * kTokens * columns * p.shape.parts));
    run(p, nullptr);
    double* truth = nullptr;
    CHECK(cudaMalloc(&truth, sizeof(double) * kTokens * columns));
    check_kernel<<<columns, kTokens>>>(p.args, truth);
    CHECK(cudaDeviceSynchronize());
    std::vector<double> want(static_cast<std::size_t>(kTokens) * columns);
    std::vector<float> got(want.size() * p.shape.parts);
    CHECK(cudaMemcpy(want.data(), truth, want.size() * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(got.data(), p.args.out, got.size() * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(truth));
    double worst = 0;
    double largest = 0;
    for (std::size_t j = 0; j < static_cast<std::size_t>(tokens) * columns; ++j) {
      double sum = 0;
      for (int part = 0; part < p.shape.parts; ++part) sum += got[part * want.size() + j];
      const double error = std::abs(sum - want[j]);
      worst = std::isnan(error) ? 1e9 : std::max(worst, error);
      largest = std::max(largest, std::abs(want[j]));
    }
    if (!(worst < 1e-5 * largest)) {
      std::printf("%s %s WRONG: %g of %g\n", name, p.shape.name, worst, largest);
    }
  }
}

double graph_us(const std::vector<Product>& products, Launch run, int only) {
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (std::size_t i = 0; i < products.size(); ++i) {
    if (only < 0 || static_cast<int>(i % 4) == only) run(products[i], stream);
  }
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  float best = 1e9f;
  for (int i = 0; i < 12; ++i) {
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    best = std::min(best, ms);
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
  return best * 1000.0 / kBlocks;
}

void measure(const std::vector<Product>& products, const char* name, Launch run, int tokens,
             int layout) {
  if (tokens > 0) check(products, run, name, tokens, layout);
  std::printf("%-44s block %6.1f us |", name, graph_us(products, run, -1));
  for (int i = 0; i < 4; ++i) {
    std::printf(" %s %5.1f", kShapes[i].name, graph_us(products, run, i));
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

// Checked where the results are those of the product.
#define VARIANT(d, s, w, t, mode, layout)                                                          \
  measure(products, "depth " #d ", strips " #s ", warps " #w ", tiles " #t ", " #mode " " #layout, \
          launch<d, s, w, t, Mode::mode, layout>, Mode::mode == Mode::kFull ? t * 8 : 0, layout)

int main() {
  {
    std::printf("4 bits, groups of 128\n");
    const std::vector<Product> products = make_products(0);
    VARIANT(2, 1, 16, 2, kFull, kWhole);
    VARIANT(3, 1, 16, 2, kFull, kWhole);
    VARIANT(4, 1, 16, 2, kFull, kWhole);
    VARIANT(1, 2, 16, 2, kFull, kWhole);
    VARIANT(2, 2, 16, 2, kFull, kWhole);
    VARIANT(2, 1, 24, 2, kFull, kWhole);
    VARIANT(3, 1, 16, 2, kFull, kUnits);
    VARIANT(2, 2, 16, 2, kFull, kUnits);
    VARIANT(3, 1, 16, 1, kFull, kWhole);
    VARIANT(2, 2, 16, 1, kFull, kWhole);
    VARIANT(3, 1, 16, 2, kNoScales, kWhole);
    VARIANT(3, 1, 16, 2, kNoProducts, kWhole);
    VARIANT(3, 1, 16, 2, kCodesOnly, kWhole);
    VARIANT(2, 2, 16, 2, kCodesOnly, kWhole);
  }
  {
    std::printf("16 %% of the slots of 5 bits in groups of 32\n");
    const std::vector<Product> products = make_products(16);
    VARIANT(3, 1, 16, 2, kFull, kWithShort);
    VARIANT(2, 2, 16, 2, kFull, kWithShort);
    VARIANT(2, 1, 24, 2, kFull, kWithShort);
  }
  return 0;
}
