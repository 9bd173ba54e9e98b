#include "backend/cuda/weights/seeded_kernels.h"

#include <algorithm>

#include "backend/cuda/device/cuda_check.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostCtas = 8192;

unsigned ctas_of(std::int64_t threads) {
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((threads + kThreads - 1) / kThreads, 1, kMostCtas));
}

__device__ __forceinline__ std::int64_t first_index() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}
__device__ __forceinline__ std::int64_t index_step() { return std::int64_t{gridDim.x} * kThreads; }

// 16 bytes a thread and iteration: two words of bits, or eight halves chosen by one word.
__global__ void __launch_bounds__(kThreads)
    seeded_bytes_kernel(SeededValues values, uint4* to, std::int64_t bytes) {
  __shared__ std::uint16_t table[256];
  if (values.halves) table[threadIdx.x] = values.values[threadIdx.x];
  __syncthreads();
  for (std::int64_t i = first_index(); 16 * i < bytes; i += index_step()) {
    __align__(16) std::uint16_t made[8];
    if (values.halves) {
      const std::uint64_t word = seeded_word(values.seed, i);
#pragma unroll
      for (int j = 0; j < 8; ++j) made[j] = table[word >> 8 * j & 255];
    } else {
      auto* words = reinterpret_cast<std::uint64_t*>(made);
      words[0] = seeded_word(values.seed, 2 * i);
      words[1] = seeded_word(values.seed, 2 * i + 1);
    }
    if (16 * (i + 1) <= bytes) {
      to[i] = *reinterpret_cast<const uint4*>(made);
    } else {
      auto* last = reinterpret_cast<std::uint16_t*>(to + i);
      for (int j = 0; j < static_cast<int>(bytes - 16 * i) / 2; ++j) last[j] = made[j];
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    seeded_columns_kernel(SeededColumns source, std::uint32_t* to) {
  const std::int64_t elements = source.rows * source.count;
  for (std::int64_t e = first_index(); e < elements; e += index_step()) {
    const std::int64_t c = e % source.count;
    const std::int64_t column = source.columns != nullptr ? source.columns[c] : source.first + c;
    const std::int64_t at = e / source.count * source.stored + column;
    to[e] = static_cast<std::uint32_t>(seeded_word(source.seed, at / 2) >> 32 * (at % 2));
  }
}

}  // namespace

void launch_seeded_bytes(const SeededValues& values, std::byte* to, std::size_t bytes,
                         cudaStream_t stream) {
  BL_CHECK(bytes % 2 == 0);
  const auto count = static_cast<std::int64_t>(bytes);
  seeded_bytes_kernel<<<ctas_of((count + 15) / 16), kThreads, 0, stream>>>(
      values, reinterpret_cast<uint4*>(to), count);
  BL_CUDA_CHECK(cudaGetLastError());
}

void launch_seeded_columns(const SeededColumns& columns, std::uint32_t* to, cudaStream_t stream) {
  seeded_columns_kernel<<<ctas_of(columns.rows * columns.count), kThreads, 0, stream>>>(columns,
                                                                                        to);
  BL_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bl::cuda
