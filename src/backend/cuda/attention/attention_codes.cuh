#pragma once
// Dequantizes FP8 and integer cache rows in registers, straight to mma fragments, without a
// binary16 tile in shared memory. For heads of whole scale groups (32 elements).
//
// In shared memory a row is its codes, in chunks of 16 bytes, and then its scales. The stride
// between rows keeps ldmatrix free of bank conflicts. ldmatrix gives each lane one 32-bit word of a
// chunk: for keys, the codes of four neighbouring dimensions; for values (transposed), two bytes of
// each of two rows, which are two neighbouring dimensions. The even bytes of the word are one pair
// of a fragment and the odd bytes another. Queries are permuted to match, and the accumulators of
// values hold dimensions 2g and 2g + 1 in rows g and g + 8.

#include <cuda_fp16.h>

#include "backend/cuda/attention/attention_task.cuh"
#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/attention/kv_codec.cuh"

namespace bl::cuda {

// The tile of 16 coded rows in shared memory. Bytes of a tile with heads of 128: 1,280 (q4), 2,304
// (q6, q8, fp8).
template <CacheType kType, int kDim>
struct CodeTile {
  static constexpr bool kScaled = kType != CacheType::kFp8;
  static constexpr int kBits = kType == CacheType::kQ4 ? 4 : kType == CacheType::kQ6 ? 6 : 8;
  static constexpr int kChunks =
      kDim * (kBits == 8 ? 8 : 4) /
      128;  // 16-byte chunks of a row's codes, without the high bits of q6
  static constexpr int kGroups = kDim / kKvScaleGroup;
  static constexpr bool kHigh = kBits == 6;
  // A group's 8 bytes of high bits, stored twice to fill a chunk.
  static constexpr int kHighAt = 16 * kChunks;
  static constexpr int kScalesAt = kHighAt + (kHigh ? 16 * kGroups : 0);
  static constexpr int kUsed = kScalesAt + (kScaled ? 2 * kGroups : 0);
  static constexpr int kStride = (kUsed + 15) / 32 * 32 + 16;  // an odd number of 16-byte chunks
  static_assert(kStride >= kUsed);
  static constexpr int kBytes = kWarpKeys * kStride;

  // Rows as they lie in the page, and the units in which they are copied.
  static constexpr int kRowBytes = kDim * kBits / 8 + (kScaled ? 2 * kGroups : 0);
  static constexpr int kUnit = kRowBytes % 16 == 0 ? 16 : kRowBytes % 8 == 0 ? 8 : 4;
  static constexpr int kUnits = kRowBytes / kUnit;  // copies of a row
  static constexpr int kCopies = (kWarpKeys * kUnits + 31) / 32;

  // The offset in the tile's row of unit `unit` of a row in the page.
  __device__ __forceinline__ static int place(int unit) {
    const int at = unit * kUnit;
    if constexpr (!kHigh) return at;
    constexpr int kGroupBytes = kKvScaleGroup * 6 / 8;
    const int group = at / kGroupBytes;
    const int inside = at % kGroupBytes;
    if (group >= kGroups) return at - kGroups * kGroupBytes + kScalesAt;
    return inside < 16 ? 16 * group + inside : kHighAt + 16 * group + inside - 16;
  }
};

// Starts copying 16 rows of a page to a tile, with zeros from row `present` on.
template <CacheType kType, int kDim>
__device__ __forceinline__ void copy_code_rows(const std::byte* from, int present,
                                               std::byte* tile) {
  using Tile = CodeTile<kType, kDim>;
  const std::uint32_t to = shared_address(tile);
  const int lane = lane_index();
#pragma unroll
  for (int n = 0; n < Tile::kCopies; ++n) {
    const int i = lane + 32 * n;
    if (kWarpKeys * Tile::kUnits % 32 != 0 && i >= kWarpKeys * Tile::kUnits) break;
    const int row = i / Tile::kUnits;
    const int place = Tile::place(i - row * Tile::kUnits);
    const std::uint32_t at = to + row * Tile::kStride + place;
    const std::byte* source = from + i * Tile::kUnit;
    copy_or_clear<Tile::kUnit>(at, source, row < present);
    if (Tile::kHigh && place >= Tile::kHighAt && place < Tile::kScalesAt) {
      copy_or_clear<Tile::kUnit>(at + 8, source, row < present);
    }
  }
}

// The codes n in the four bytes of a word as the signed binary16 values n − 2^(bits − 1), exactly:
// the two even bytes and the two odd bytes.
struct CodePairs {
  std::uint32_t even;
  std::uint32_t odd;
};

// Subtracts 1024 + half_levels from two binary16 values 1024 + n.
__device__ __forceinline__ std::uint32_t centred(std::uint32_t above, int half_levels) {
  const auto middle = __ushort_as_half(static_cast<unsigned short>(0x6400 | half_levels));
  return word_of(__hsub2(*reinterpret_cast<const __half2*>(&above), __half2half2(middle)));
}

template <int kBits>
__device__ __forceinline__ CodePairs byte_pairs(std::uint32_t codes) {
  constexpr int kHalf = 1 << (kBits - 1);
  return {centred((codes & 0x00ff00ffu) | 0x64006400u, kHalf),
          centred(__byte_perm(codes, 0x64646464u, 0x4341), kHalf)};
}

// The dequantized codes of a word, without the scale. In q4 and q6 a byte holds the low bits of two
// elements: `near` are those in the first 16 of the group, `far` those 16 further on. FP8 and q8
// have only `near`.
template <CacheType kType>
struct WordPairs {
  CodePairs near;
  CodePairs far;

  // `high` (q6 only): the word of high bits, shifted so that those of `near` start at bit 0 of a
  // byte.
  __device__ __forceinline__ explicit WordPairs(std::uint32_t word, std::uint32_t high = 0) {
    if constexpr (kType == CacheType::kQ4) {
      near = {centred((word & 0x000f000fu) | 0x64006400u, 8),
              centred((word >> 8 & 0x000f000fu) | 0x64006400u, 8)};
      far = {sixteenths((word & 0x00f000f0u) | 0x64006400u),
             sixteenths((word >> 8 & 0x00f000f0u) | 0x64006400u)};
    } else if constexpr (kType == CacheType::kQ6) {
      near = byte_pairs<6>((word & 0x0f0f0f0fu) | (high << 4 & 0x30303030u));
      far = byte_pairs<6>((word >> 4 & 0x0f0f0f0fu) | (high & 0x30303030u));
    } else if constexpr (kType == CacheType::kQ8) {
      near = byte_pairs<8>(word);
    } else {
      __half2 pairs[2];
      e4m3_quad_to_halves(__byte_perm(word, 0, 0x3120), pairs);
      near = {word_of(pairs[0]), word_of(pairs[1])};
    }
  }

 private:
  // Converts two binary16 values 1024 + 16 n to n − 8.
  __device__ __forceinline__ static std::uint32_t sixteenths(std::uint32_t above) {
    const __half2 factor = __half2half2(__ushort_as_half(0x2c00));  // 1/16
    const __half2 middle = __half2half2(__ushort_as_half(0xd480));  // −(64 + 8)
    return word_of(__hfma2(*reinterpret_cast<const __half2*>(&above), factor, middle));
  }
};

// All scales of a row, loaded at once.
template <int kGroups>
struct RowScales {
  std::uint32_t words[kGroups / 2];
  __device__ __forceinline__ void load(const std::byte* at) {
    if constexpr (kGroups == 4) {
      const uint2 both = *reinterpret_cast<const uint2*>(at);
      words[0] = both.x;
      words[1] = both.y;
    } else {
      static_assert(kGroups == 2);
      words[0] = *reinterpret_cast<const std::uint32_t*>(at);
    }
  }
  __device__ __forceinline__ float at(int group) const {
    const auto half = static_cast<unsigned short>(words[group / 2] >> (16 * (group & 1)));
    return __half2float(__ushort_as_half(half));
  }
};

// The scales of group `group` of two rows, as the two halves of a word.
template <int kGroups>
__device__ __forceinline__ __half2 scale_pair(const RowScales<kGroups>& a,
                                              const RowScales<kGroups>& b, int group) {
  const std::uint32_t pair =
      __byte_perm(a.words[group / 2], b.words[group / 2], group % 2 == 0 ? 0x5410 : 0x7632);
  return *reinterpret_cast<const __half2*>(&pair);
}

__device__ __forceinline__ std::uint32_t times(std::uint32_t halves, __half2 factor) {
  return word_of(__hmul2(*reinterpret_cast<const __half2*>(&halves), factor));
}

// This lane's ldmatrix.x4 address for chunks c and c + 1 of 16 rows. The four matrices are rows 0 …
// 7 and rows 8 … 15 of chunk c, then those of chunk c + 1.
__device__ __forceinline__ const __half* chunk_address(const std::byte* tile, int stride,
                                                       int chunk) {
  const int lane = lane_index();
  return reinterpret_cast<const __half*>(tile + (lane & 15) * stride + 16 * (chunk + (lane >> 4)));
}

}  // namespace bl::cuda
