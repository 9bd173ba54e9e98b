#pragma once
// Packed codes decoded in registers: what one lane holds of the codes, scales and zero points of
// one k_step, in the layout of operand A of mma.m16n8k16 (code_matrix.h says how codes lie and
// why). Codes come out as subnormal halves, code · 2^-24, which tensor cores multiply exactly. The
// skinny GEMMs multiply these directly; dequantization and the wgmma path turn them into values
// (code_values.cuh). The int8 path decodes codes itself (gemm/gemv_i8/limb_mma.cuh).

#include <cuda_fp16.h>

#include <type_traits>

#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

inline constexpr float kCodeOne = 0x1p-24f;  // what code 1 counts in a sum of products

// True at compile time where kBits is the only width in kWidths.
template <int kBits, WidthSet kWidths>
__device__ __forceinline__ bool is_width(int bits) {
  return has_width(kWidths, kBits) && (kWidths == 1u << kBits || bits == kBits);
}

__device__ __forceinline__ std::uint32_t shifted(std::uint32_t word, int right) {
  return right >= 0 ? word >> right : word << -right;
}

// The codes of one lane and k_step, in planes as loaded. pair(h, r, s) is one register of operand
// A: the codes of e = 0, 1 as subnormal halves, multiplied by 16 if s = 1. `beside`: other bits to
// put into the register, which costs no further instruction (lop3).
template <int Bits>
struct CodeFragment;

template <>
struct CodeFragment<4> {
  std::uint32_t w[2];
  __device__ __forceinline__ void load(const std::byte* k_step, int lane) {
    const uint2 a = reinterpret_cast<const uint2*>(k_step)[lane];
    w[0] = a.x, w[1] = a.y;
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return ((w[h] >> (8 * r)) & (s == 0 ? 0x000f000fu : 0x00f000f0u)) | beside;
  }
};

template <>
struct CodeFragment<2> {
  std::uint32_t w;
  __device__ __forceinline__ void load(const std::byte* k_step, int lane) {
    w = reinterpret_cast<const std::uint32_t*>(k_step)[lane];
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return ((w >> (8 * r + 2 * h)) & (s == 0 ? 0x00030003u : 0x00300030u)) | beside;
  }
};

template <>
struct CodeFragment<3> {
  std::uint32_t w;
  // The lower bits of h = 1, where a k_step of two bits has those of h = 0.
  CodeFragment<2> low;
  __device__ __forceinline__ void load(const std::byte* k_step, int lane) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(k_step);
    w = words[lane];
    low.w = words[low_words(3) + lane / 2] >> (lane % 2 * 2);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    if (h == 0) return ((w >> (8 * r)) & (s == 0 ? 0x00070007u : 0x00700070u)) | beside;
    return ((w >> (8 * r + 1)) & (s == 0 ? 0x00040004u : 0x00400040u)) | low.pair(0, r, s, beside);
  }
};

template <>
struct CodeFragment<5> {
  CodeFragment<4> low;
  // The highest bits, where a k_step of two bits has the lowest ones.
  std::uint32_t top;
  __device__ __forceinline__ void load(const std::byte* k_step, int lane) {
    low.load(k_step, lane);
    top = reinterpret_cast<const std::uint32_t*>(k_step)[low_words(5) + lane / 2] >> (lane % 2);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return low.pair(h, r, s) |
           ((shifted(top, 8 * r + 2 * h - 4) & (s == 0 ? 0x00100010u : 0x01000100u)) | beside);
  }
};

template <>
struct CodeFragment<6> {
  CodeFragment<4> low;
  CodeFragment<2> high;
  __device__ __forceinline__ void load(const std::byte* k_step, int lane) {
    low.load(k_step, lane);
    high.load(k_step + 256, lane);
  }
  __device__ __forceinline__ std::uint32_t pair(int h, int r, int s,
                                                std::uint32_t beside = 0) const {
    return low.pair(h, r, s) |
           ((shifted(high.w, 8 * r + 2 * h - 4) & (s == 0 ? 0x00300030u : 0x03000300u)) | beside);
  }
};

// The scale and zero point of this lane's two columns (h = 0, 1) in one n_tile and group.
struct LaneScales {
  float scale[2];
  float zero[2];
};

// The scales of a k_block's group: the constructor computes what all n_tiles share, of() the scales
// of one n_tile. They are multiplied by `factor`.
struct ExlScales {
  __device__ static constexpr int bytes(ScaleKind) { return scale_bytes(ScaleKind::kExl2); }
  float of_code;  // of code `lane % 16`
  float centre;
  __device__ __forceinline__ ExlScales(const CodeMatrixView&, const KBlock& k_block, int lane,
                                       float factor) {
    const float square = static_cast<float>((lane % 16 + 1) * (lane % 16 + 1));
    of_code = __half2float(__float2half_rn(square * k_block.group_scale)) * factor;
    centre = __uint_as_float((126u + k_block.bits) << 23);  // 2^(bits - 1)
  }
  // `scales`: of the n_tile and group. All lanes take part.
  __device__ __forceinline__ LaneScales of(const std::byte* scales, int lane) const {
    const int codes = static_cast<int>(scales[lane / 4]);
    return {{__shfl_sync(0xffffffffu, of_code, codes, 16),
             __shfl_sync(0xffffffffu, of_code, codes >> 4, 16)},
            {centre, centre}};
  }
};

struct GptqScales {
  __device__ static int bytes(ScaleKind kind) { return scale_bytes(kind); }
  ScaleKind kind;
  float base;
  float factor;
  __device__ __forceinline__ GptqScales(ScaleKind of, float zero, float times)
      : kind(of), base(zero), factor(times) {}
  __device__ __forceinline__ GptqScales(const CodeMatrixView& m, const KBlock&, int, float times)
      : GptqScales(m.kind, static_cast<float>(m.zero), times) {}
  __device__ __forceinline__ LaneScales of(const std::byte* scales, int lane) const {
    const int g = lane / 4;
    const float2 halves = __half22float2(reinterpret_cast<const __half2*>(scales)[g]);
    LaneScales result{{halves.x * factor, halves.y * factor}, {base, base}};
    if (kind == ScaleKind::kGptqZeros4) {
      const auto codes = static_cast<std::uint32_t>(scales[32 + g]);
      result.zero[0] += static_cast<float>(codes & 15u);
      result.zero[1] += static_cast<float>(codes >> 4);
    } else if (kind == ScaleKind::kGptqZeros16) {
      const ushort2 zeros = reinterpret_cast<const ushort2*>(scales + 32)[g];
      result.zero[0] = static_cast<float>(zeros.x);
      result.zero[1] = static_cast<float>(zeros.y);
    }
    return result;
  }
};

// GptqScales for kGptq alone, so that the compiler drops the code for zero points.
struct PlainGptqScales : GptqScales {
  __device__ static constexpr int bytes(ScaleKind) { return scale_bytes(ScaleKind::kGptq); }
  __device__ __forceinline__ PlainGptqScales(const CodeMatrixView& m, const KBlock&, int,
                                             float times)
      : GptqScales(ScaleKind::kGptq, static_cast<float>(m.zero), times) {}
};

}  // namespace bl::cuda
