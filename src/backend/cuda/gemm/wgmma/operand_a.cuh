#pragma once
// Codes and scales of the wgmma GEMM, in k_tiles of two k_steps: how producer warps make scales in
// shared memory, and how consumer warps dequantize codes into operand A.

#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/device/shared_address.cuh"
#include "backend/cuda/gemm/wgmma/wgmma_plan.h"
#include "backend/cuda/layout/code_values.cuh"
#include "backend/cuda/layout/k_step_table.h"

namespace bl::cuda {

// Copies a matrix's table of k_steps to shared memory with `threads` threads, of which the caller
// is number `thread`.
__device__ __forceinline__ void copy_k_step_table(const CodeMatrixView& m, int thread, int threads,
                                                  std::byte* to) {
  const auto* from = reinterpret_cast<const uint4*>(m.k_step_table);
  for (int i = thread; i < k_step_table_bytes(m.k_steps) / 16; i += threads) {
    reinterpret_cast<uint4*>(to)[i] = __ldg(from + i);
  }
}

// Scales of one k_step for all n_tiles of a tile: column 8h + g at [g][h], the half twice in a
// word. GPTQ also has what magic-number codes are too large by: kLowBase + zero and kHighBase +
// zero.
template <bool kGptq, int kNTiles>
struct StageScales;
template <int kNTiles>
struct alignas(16) StageScales<true, kNTiles> {
  std::uint32_t scale[kNTiles][8][2];
  std::uint32_t low[kNTiles][8][2];
  std::uint32_t high[kNTiles][8][2];
};
template <int kNTiles>
struct alignas(16) StageScales<false, kNTiles> {
  std::uint32_t scale[kNTiles][8][2];
};

// Prefetches the scales of `n_tiles` n_tiles from `first` on to L2. The producer loads a group's
// scales only one k_tile before they are needed, which hides the latency of L2 but not of memory.
__device__ __forceinline__ void prefetch_scales(const CodeMatrixView& m, int first, int n_tiles) {
  constexpr int kLine = 128;
  const auto stride = static_cast<int>(scale_stride(m.kind, m.groups));
  const std::byte* from = m.scales + std::int64_t{first} * stride;
  const int bytes = min(n_tiles, m.n_tiles - first) * stride;
#pragma unroll 1
  for (auto i = static_cast<int>(threadIdx.x % 32) * kLine; i < bytes; i += 32 * kLine) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i));
  }
}

// Makes the scales of eight n_tiles with one warp: each lane has columns g = 2q and 2q + 1 (both h)
// of n_tile lane / 4, q = lane % 4.
template <bool kGptq, int kNTiles>
class ScaleProducer {
 public:
  static constexpr int kNTilesAtOnce = 8;

  // `n_tile`: the lane's n_tile in the matrix; `own`: in the tile.
  __device__ __forceinline__ void open(const CodeMatrixView& m, int n_tile, int own) {
    m_ = &m;
    own_ = own;
    n_tile_ = m.scales + min(n_tile, m.n_tiles - 1) * scale_stride(m.kind, m.groups);
  }
  // Loads the packed scales of a group, for a later make().
  __device__ __forceinline__ void load(int group) {
    const int q = lane() % 4;
    if constexpr (!kGptq) {
      scales_.x = __ldg(reinterpret_cast<const std::uint16_t*>(n_tile_ + group * 8) + q);
    } else {
      const std::byte* at = n_tile_ + group * scale_bytes(m_->kind);
      scales_ = __ldg(reinterpret_cast<const uint2*>(at) + q);
      if (m_->kind == ScaleKind::kGptqZeros4) {
        zeros_.x = __ldg(reinterpret_cast<const std::uint16_t*>(at + 32) + q);
      } else if (m_->kind == ScaleKind::kGptqZeros16) {
        zeros_ = __ldg(reinterpret_cast<const uint2*>(at + 32) + q);
      }
    }
  }
  __device__ __forceinline__ void make(const KStepEntry& k_step,
                                       StageScales<kGptq, kNTiles>& to) const {
    const int n_tile = own_;
    const int g = lane() % 4 * 2;
    uint4 scale;
    if constexpr (!kGptq) {
      scale.x = of_code(scales_.x, k_step), scale.y = of_code(scales_.x >> 4, k_step);
      scale.z = of_code(scales_.x >> 8, k_step), scale.w = of_code(scales_.x >> 12, k_step);
    } else {
      scale.x = __byte_perm(scales_.x, 0, 0x1010), scale.y = __byte_perm(scales_.x, 0, 0x3232);
      scale.z = __byte_perm(scales_.y, 0, 0x1010), scale.w = __byte_perm(scales_.y, 0, 0x3232);
      std::uint32_t zero[4];
      find_zeros(zero);
      *reinterpret_cast<uint4*>(to.low[n_tile][g]) = magic_zeros(zero, kLowBase);
      *reinterpret_cast<uint4*>(to.high[n_tile][g]) = magic_zeros(zero, kHighBase);
    }
    *reinterpret_cast<uint4*>(to.scale[n_tile][g]) = scale;
  }

 private:
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ static std::uint32_t twice(float value) {
    return word_of(__float2half2_rn(value));
  }
  __device__ __forceinline__ static std::uint32_t of_code(std::uint32_t codes,
                                                          const KStepEntry& k_step) {
    const auto root = static_cast<float>((codes & 15u) + 1);
    return twice(root * root * k_step.group_scale);
  }
  __device__ __forceinline__ void find_zeros(std::uint32_t (&zero)[4]) const {
    const auto base = static_cast<std::uint32_t>(m_->zero);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      zero[i] = base;
      if (m_->kind == ScaleKind::kGptqZeros4) zero[i] += zeros_.x >> 4 * i & 15u;
    }
    if (m_->kind == ScaleKind::kGptqZeros16) {
      zero[0] = zeros_.x & 0xffffu, zero[1] = zeros_.x >> 16;
      zero[2] = zeros_.y & 0xffffu, zero[3] = zeros_.y >> 16;
    }
  }
  __device__ __forceinline__ static uint4 magic_zeros(const std::uint32_t (&zero)[4], float base) {
    return {twice(base + static_cast<float>(zero[0])), twice(base + static_cast<float>(zero[1])),
            twice(base + static_cast<float>(zero[2])), twice(base + static_cast<float>(zero[3]))};
  }

  const CodeMatrixView* m_ = nullptr;
  const std::byte* n_tile_ = nullptr;
  int own_ = 0;  // n_tile in the tile
  uint2 scales_{};
  uint2 zeros_{};
};

// A lane's registers of operand A for one k_tile: [k_step][s], in mma.m16n8k16 order.
using KTileOperands = std::uint32_t[kKTileKSteps][2][4];

// Dequantizes the codes of one n_tile.
template <bool kGptq, int kNTiles>
class KTileDecoder {
 public:
  using Scales = StageScales<kGptq, kNTiles>;
  // `low_bits`, `high_bits`: kLowBits and kHighBits as run-time values, so that they stay in
  // registers and one instruction (lop3) masks a code and puts the magic number beside it.
  __device__ __forceinline__ KTileDecoder(int n_tile, int lane, std::uint32_t low_bits,
                                          std::uint32_t high_bits)
      : lane_(lane),
        scales_at_((n_tile * 8 + lane_ / 4) * 8),
        low_bits_(low_bits),
        high_bits_(high_bits) {}

  // Dequantizes one k_tile. `widths`: of its two k_steps, a byte each; `codes`: of these k_steps,
  // one behind the other; `scales`: of both k_steps.
  __device__ __forceinline__ void decode(std::uint32_t widths, const std::byte* codes,
                                         const std::byte* scales, KTileOperands& a) const {
    if (both<4>(widths, codes, scales, a)) return;
    if (both<3>(widths, codes, scales, a)) return;
    if (both<5>(widths, codes, scales, a)) return;
    if (both<6>(widths, codes, scales, a)) return;
    if (both<2>(widths, codes, scales, a)) return;
    if (both<8>(widths, codes, scales, a)) return;
    const int first = static_cast<int>(widths & 0xffu);
    decode_any(first, codes, scales, a[0]);
    decode_any(static_cast<int>(widths >> 8), codes + k_step_bytes(first), scales + sizeof(Scales),
               a[1]);
  }

 private:
  template <int kBits>
  __device__ __forceinline__ bool both(std::uint32_t widths, const std::byte* codes,
                                       const std::byte* scales, KTileOperands& a) const {
    if constexpr (kGptq && (kBits == 5 || kBits == 6)) return false;  // GPTQ has no such widths
    if (widths != static_cast<std::uint32_t>(kBits << 8 | kBits)) return false;
#pragma unroll
    for (int u = 0; u < kKTileKSteps; ++u) {
      decode_k_step<kBits>(codes + u * k_step_bytes(kBits), scales + u * sizeof(Scales), a[u]);
    }
    return true;
  }

  __device__ __forceinline__ void decode_any(int bits, const std::byte* k_step,
                                             const std::byte* scales,
                                             std::uint32_t (&a)[2][4]) const {
    if (bits == 0) {  // behind the last k_step, where activations are zeros
#pragma unroll
      for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = 0;
      return;
    }
    with_width(bits, [&]<int kBits>(std::integral_constant<int, kBits>) {
      decode_k_step<kBits>(k_step, scales, a);
    });
  }

  template <int kBits>
  __device__ __forceinline__ void decode_k_step(const std::byte* k_step, const std::byte* scales,
                                                std::uint32_t (&a)[2][4]) const {
    using Codes = CodesOf<kBits>;
    Codes codes;
    codes.load(k_step, lane_);
    const std::byte* own = scales + scales_at_;
    const uint2 scale = *reinterpret_cast<const uint2*>(own);
    uint2 low{};
    uint2 high{};
    if constexpr (kGptq) {
      low = *reinterpret_cast<const uint2*>(own + sizeof(Scales::low));
      high = *reinterpret_cast<const uint2*>(own + 2 * sizeof(Scales::low));
    }
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int h = c % 2;
        const bool is_low = magic_base<Codes>(s) == kLowBase;
        __half2 zero;
        if constexpr (kGptq) {
          const uint2& zeros = is_low ? low : high;
          zero = halves_of(h == 0 ? zeros.x : zeros.y);
        } else {
          zero = __float2half2_rn(magic_base<Codes>(s) + static_cast<float>(1 << (kBits - 1)));
        }
        const __half2 magic = halves_of(codes.pair(h, c / 2, s, is_low ? low_bits_ : high_bits_));
        a[s][c] = word_of(dequant_pair(magic, zero, halves_of(h == 0 ? scale.x : scale.y)));
      }
  }

  int lane_;
  int scales_at_;  // of the lane's columns, from a k_step's scales
  std::uint32_t low_bits_;
  std::uint32_t high_bits_;
};

}  // namespace bl::cuda
