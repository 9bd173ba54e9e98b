#pragma once
// Decoding of packed units, and the kernels that kernels_simd.cc lists; for files that are compiled
// once for each instruction set.

#include "backend/cpu/matmul_kernels.h"
#include "backend/cpu/simd/vec.h"

namespace bl::cpu::BL_ISA {

void quantize(const QuantizeArgs& args, std::int64_t begin, std::int64_t end);
void quantized_product(const QuantizedView& w, const ActivationView& x, const OutputView& out,
                       std::int64_t begin, std::int64_t end);
void matmul_dense(const DenseView& w, const FloatRows& x, const OutputView& out,
                  const MatmulKernels::DenseRange& range);

// Register blocks, as large as the registers allow. The portable version has no kernels for one
// row, because each copy of the decoding is long if a vector is a loop.
#if defined(__AVX512F__)
inline constexpr bool kRowKernels = true;
inline constexpr int kBlockRows = 8;   // rows of a register block, quantized
inline constexpr int kBlockTiles = 2;  // tiles of a register block
inline constexpr int kRowTiles = 2;    // tiles processed together for a single row
inline constexpr int kDenseRows = 4;
inline constexpr int kDenseColumns = 6;
#elif defined(__AVX2__)
inline constexpr bool kRowKernels = true;
inline constexpr int kBlockRows = 4;
inline constexpr int kBlockTiles = 1;
inline constexpr int kRowTiles = 1;
inline constexpr int kDenseRows = 2;
inline constexpr int kDenseColumns = 3;
#else
inline constexpr bool kRowKernels = false;
inline constexpr int kBlockRows = 1;
inline constexpr int kBlockTiles = 1;
inline constexpr int kRowTiles = 1;
inline constexpr int kDenseRows = 1;
inline constexpr int kDenseColumns = 2;
#endif

// Decodes pair p = 2q + h of a unit: codes 4q + h and 4q + h + 2 of column l become the words of
// lane l. A unit of b bits is b vectors in planes of 4, 2, 1 or 8 bits, lowest bits first. In a
// plane of w bits, vector v holds the quads from v · 8/w on, in fields of w bits of each byte,
// lowest first.
template <int Bits, int p>
inline I16x32 decode_pair(const std::uint8_t* unit) {
  constexpr int q = p / 2;
  constexpr int byte = 8 * (p % 2);
  if constexpr (Bits == 8) {
    return shift<byte>(I16x32::load(unit + 64 * q)) & I16x32::splat(0xff);
  } else if constexpr (Bits == 4) {
    return shift<4 * (q % 2) + byte>(I16x32::load(unit + 64 * (q / 2))) & I16x32::splat(0x0f);
  } else if constexpr (Bits == 2) {
    return shift<2 * (q % 4) + byte>(I16x32::load(unit + 64 * (q / 4))) & I16x32::splat(0x03);
  } else if constexpr (Bits == 6) {
    const I16x32 high = shift<2 * (q % 4) + byte - 4>(I16x32::load(unit + 256 + 64 * (q / 4)));
    return or_masked(decode_pair<4, p>(unit), high, I16x32::splat(0x30));
  } else if constexpr (Bits == 5) {
    const I16x32 high = shift<q + byte - 4>(I16x32::load(unit + 256));
    return or_masked(decode_pair<4, p>(unit), high, I16x32::splat(0x10));
  } else {
    static_assert(Bits == 3);
    const I16x32 high = shift<q + byte - 2>(I16x32::load(unit + 128));
    return or_masked(decode_pair<2, p>(unit), high, I16x32::splat(0x04));
  }
}

// Calls f.template operator()<i>() for i in [0, N). Loops over register blocks must be unrolled
// before the compiler allocates registers.
template <int N, int i = 0, class F>
[[gnu::always_inline]] inline void unroll(const F& f) {
  if constexpr (i < N) {
    f.template operator()<i>();
    unroll<N, i + 1>(f);
  }
}

// Prefetches the codes of a unit, every `Step`-th line. If lines come in pairs, requesting the
// others would only occupy some of the few (sixteen) fill buffers of the L1 cache.
template <int Bits, int Step = 1>
[[gnu::always_inline]] inline void prefetch_unit(const std::uint8_t* unit) {
  unroll<(Bits + Step - 1) / Step>([&]<int v>() { prefetch(unit + 64 * Step * v); });
}

// Calls f.template operator()<Bits>() for the width of a band.
template <class F>
inline void with_bits(int bits, const F& f) {
  switch (bits) {
    case 2:
      return f.template operator()<2>();
    case 3:
      return f.template operator()<3>();
    case 4:
      return f.template operator()<4>();
    case 5:
      return f.template operator()<5>();
    case 6:
      return f.template operator()<6>();
    default:
      return f.template operator()<8>();
  }
}

// Whether columns have zero points of their own.
template <ScaleKind Kind>
inline constexpr bool kColumnZeros =
    Kind == ScaleKind::kHalfZero8 || Kind == ScaleKind::kHalfZero16;

// The scales and zero points of one segment of one tile.
template <ScaleKind Kind>
struct StageScales {
  F32x16 scale;
  I32x16 zero;  // only if kColumnZeros

  static StageScales load(const QuantizedView& w, const std::uint8_t* scales, int segment) {
    StageScales r;
    if constexpr (Kind == ScaleKind::kCodes) {
      r.scale = select_scales(scales, F32x16::load(w.tables + 16 * segment));
    } else {
      r.scale = F32x16::load_half(scales);
    }
    if constexpr (Kind == ScaleKind::kHalfZero8) {
      r.zero = I32x16::load_bytes(scales + 32) + I32x16::splat(w.zero);
    }
    if constexpr (Kind == ScaleKind::kHalfZero16) {
      r.zero = I32x16::load_words(reinterpret_cast<const std::uint16_t*>(scales + 32)) +
               I32x16::splat(w.zero);
    }
    return r;
  }

  // Σ zero · x for a row whose activations sum to `sum`.
  I32x16 zero_part(std::int32_t constant_zero, std::int32_t sum) const {
    if constexpr (kColumnZeros<Kind>) return zero * I32x16::splat(sum);
    return I32x16::splat(constant_zero * sum);
  }
};

template <class F>
inline void with_scale_kind(ScaleKind kind, const F& f) {
  switch (kind) {
    case ScaleKind::kCodes:
      return f.template operator()<ScaleKind::kCodes>();
    case ScaleKind::kHalf:
      return f.template operator()<ScaleKind::kHalf>();
    case ScaleKind::kHalfZero8:
      return f.template operator()<ScaleKind::kHalfZero8>();
    case ScaleKind::kHalfZero16:
      return f.template operator()<ScaleKind::kHalfZero16>();
  }
}

// Writes those columns of a tile that exist.
inline void write_tile(const OutputView& output, std::int64_t row, std::int64_t tile,
                       F32x16 value) {
  const std::int64_t first = tile * kTileColumns;
  const int columns = output.columns - first < kTileColumns
                          ? static_cast<int>(output.columns - first)
                          : kTileColumns;
  if (columns <= 0) return;
  float* out = output.out + row * output.stride + first;
  value = value * F32x16::splat(output.multiplier);
  if (output.bias != nullptr) {
    value = value + F32x16::load_first(output.bias + first, columns);
  }
  if (output.accumulate) value = F32x16::load_first(out, columns) + value;
  value.store_first(out, columns);
}

}  // namespace bl::cpu::BL_ISA
