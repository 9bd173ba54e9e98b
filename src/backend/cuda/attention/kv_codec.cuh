#pragma once
// Encoding and decoding of KV cache rows (ops/kv_codec.h) on the device.
//
// Encoding: one warp a scale group of 32 elements, lane l holding element l (rotate_group(),
// encode_group()). The groups of a row are independent of each other.
//
// Decoding: RowReader::decode8() gives eight consecutive elements of a row to one thread, as
// binary16 or F32. The conversions of four codes in a register serve kernels that load by
// themselves. Rows of integer codes decode to the rotated vector. Binary16 results are (n − h) ·
// scale rounded once; F32 results are exact. Row pointers may be to global or shared memory,
// aligned as row_alignment() says.

#include <cuda_fp16.h>

#include "backend/cuda/attention/kv_row_code.h"
#include "backend/cuda/device/warp_reduce.cuh"
#include "ops/kv_codec.h"

namespace bl::cuda {

// Returns the alignment in bytes, a power of two up to 16, of all rows of a run whose first row has
// it.
inline int row_alignment(const RowShape& shape) {
  const int lowest = shape.bytes & -shape.bytes;
  return lowest < 16 ? lowest : 16;
}

// ---- Four codes in a register

// Returns (n − h) · scale for the four bytes n of `codes`, in order. `scale` holds the scale twice.
__device__ __forceinline__ void quad_to_halves(int bits, std::uint32_t codes, __half2 scale,
                                               __half2 (&out)[2]) {
  // The binary16 bits 0x6400 | n are the value 1024 + n.
  const auto above_middle = static_cast<unsigned short>(0x6400 | 1 << (bits - 1));
  const __half2 middle = __half2half2(__ushort_as_half(above_middle));
  const std::uint32_t pairs[2] = {__byte_perm(codes, 0x64646464u, 0x4140),
                                  __byte_perm(codes, 0x64646464u, 0x4342)};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const __half2 above = *reinterpret_cast<const __half2*>(&pairs[i]);
    out[i] = __hmul2(__hsub2(above, middle), scale);
  }
}

template <int kBits>
__device__ __forceinline__ void quad_to_floats(std::uint32_t codes, float scale, float* out) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // The float bits 0x4b000000 | n are the value 2^23 + n, so no conversion is needed.
    const std::uint32_t above = __byte_perm(codes, 0x4b000000u, 0x7540 + i);
    out[i] = (__uint_as_float(above) - (8388608.0f + (1 << (kBits - 1)))) * scale;
  }
}

__device__ __forceinline__ void e4m3_quad_to_halves(std::uint32_t codes, __half2 (&out)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t pairs[2];
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pairs[0]) : "h"(static_cast<std::uint16_t>(codes)));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
      : "=r"(pairs[1])
      : "h"(static_cast<std::uint16_t>(codes >> 16)));
#pragma unroll
  for (int i = 0; i < 2; ++i) out[i] = *reinterpret_cast<const __half2*>(&pairs[i]);
#else
  const std::uint32_t bytes[2] = {__byte_perm(codes, 0, 0x4140), __byte_perm(codes, 0, 0x4342)};
  const __half2 power =
      __half2half2(__ushort_as_half(0x5c00));  // 2^8, since the exponent biases differ by 8
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t bits = (bytes[i] & 0x00800080u) << 8 | (bytes[i] & 0x007f007fu) << 7;
    out[i] = __hmul2(*reinterpret_cast<const __half2*>(&bits), power);
  }
#endif
}

__device__ __forceinline__ void e4m3_quad_to_floats(std::uint32_t codes, float* out) {
  __half2 halves[2];
  e4m3_quad_to_halves(codes, halves);
  const float2 a = __half22float2(halves[0]);
  const float2 b = __half22float2(halves[1]);
  out[0] = a.x;
  out[1] = a.y;
  out[2] = b.x;
  out[3] = b.y;
}

// ---- Eight elements of a row

// Loads a 32-bit word from an address aligned to kAlign bytes; less than 4 means any alignment.
template <int kAlign>
__device__ __forceinline__ std::uint32_t load_word(const std::byte* at) {
  if constexpr (kAlign >= 4) return *reinterpret_cast<const std::uint32_t*>(at);
  return std::uint32_t{read_half(at)} | std::uint32_t{read_half(at + 2)} << 16;
}

// Loads two 32-bit words from an address aligned to kAlign bytes.
template <int kAlign>
__device__ __forceinline__ uint2 load_two_words(const std::byte* at) {
  if constexpr (kAlign >= 8) {
    return *reinterpret_cast<const uint2*>(at);
  } else if constexpr (kAlign >= 4) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(at);
    return {words[0], words[1]};
  } else if constexpr (kAlign >= 2) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(at);
    return {halves[0] | static_cast<std::uint32_t>(halves[1]) << 16,
            halves[2] | static_cast<std::uint32_t>(halves[3]) << 16};
  } else {
    uint2 words{0, 0};
    for (int i = 3; i >= 0; --i) {
      words.x = words.x << 8 | static_cast<std::uint32_t>(at[i]);
      words.y = words.y << 8 | static_cast<std::uint32_t>(at[4 + i]);
    }
    return words;
  }
}

// Loads the codes of elements [8 · part, 8 · part + 8) of a whole group, one a byte.
template <int kBits, int kAlign>
__device__ __forceinline__ uint2 load_eight_codes(const std::byte* codes, int part) {
  if constexpr (kBits == 8) return load_two_words<kAlign>(codes + 8 * part);
  uint2 low = load_two_words<kAlign>(codes + 8 * (part & 1));
  const int nibble = part & 2 ? 4 : 0;
  low.x = low.x >> nibble & 0x0f0f0f0fu;
  low.y = low.y >> nibble & 0x0f0f0f0fu;
  if constexpr (kBits == 6) {
    const uint2 high = load_two_words<kAlign>(codes + 16);
    low.x |= (high.x >> 2 * part & 0x03030303u) << 4;
    low.y |= (high.y >> 2 * part & 0x03030303u) << 4;
  }
  return low;
}

// Loads the scale of a group from an address aligned to kAlign bytes (1: any).
template <int kAlign>
__device__ __forceinline__ __half load_scale(const std::byte* at) {
  if constexpr (kAlign >= 2) return *reinterpret_cast<const __half*>(at);
  return __ushort_as_half(read_half(at));
}

// Decodes rows of a cache type. kAlign, at most row_alignment(), is how rows are aligned.
template <CacheType kType, int kAlign>
struct RowReader {
  static constexpr int kBits = kType == CacheType::kQ8   ? 8
                               : kType == CacheType::kQ6 ? 6
                               : kType == CacheType::kQ4 ? 4
                                                         : 0;  // not an integer type

  // Decodes elements [8 · chunk, 8 · chunk + 8). Those beyond shape.dim are 0.
  static __device__ __forceinline__ void decode8(const RowShape& shape, const std::byte* row,
                                                 int chunk, __half2 (&out)[4]);
  static __device__ __forceinline__ void decode8(const RowShape& shape, const std::byte* row,
                                                 int chunk, float (&out)[8]);

  // Whether the fast path can decode a chunk: it lies within the row and, for integer codes, in a
  // whole group.
  static __device__ __forceinline__ bool whole(const RowShape& shape, int chunk) {
    const int end = kBits > 0 ? (8 * chunk | (kKvScaleGroup - 1)) + 1 : 8 * chunk + 8;
    return end <= shape.dim;
  }
};

template <CacheType kType, int kAlign>
__device__ __forceinline__ void RowReader<kType, kAlign>::decode8(const RowShape& shape,
                                                                  const std::byte* row, int chunk,
                                                                  __half2 (&out)[4]) {
  auto& first = reinterpret_cast<__half2(&)[2]>(out[0]);
  auto& second = reinterpret_cast<__half2(&)[2]>(out[2]);
  if (!whole(shape, chunk)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int e = 8 * chunk + 2 * i;
      const auto element = [&](int at) {
        return at < shape.dim ? decode_element<Widths::kUsual>(shape, row, at) : 0.0f;
      };
      out[i] = __floats2half2_rn(element(e), element(e + 1));
    }
  } else if constexpr (kBits > 0) {
    const int group = chunk / 4;
    const uint2 codes = load_eight_codes<kBits, kAlign>(row + group * (4 * kBits), chunk % 4);
    const __half2 scale = __half2half2(load_scale<kAlign>(row + shape.code_bytes + 2 * group));
    quad_to_halves(kBits, codes.x, scale, first);
    quad_to_halves(kBits, codes.y, scale, second);
  } else if constexpr (kType == CacheType::kFp8) {
    const uint2 codes = load_two_words<kAlign>(row + 8 * chunk);
    e4m3_quad_to_halves(codes.x, first);
    e4m3_quad_to_halves(codes.y, second);
  } else if constexpr (kType == CacheType::kF16) {
    const uint2 words[2] = {load_two_words<kAlign>(row + 16 * chunk),
                            load_two_words<kAlign>(row + 16 * chunk + 8)};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t pair = i % 2 == 0 ? words[i / 2].x : words[i / 2].y;
      out[i] = *reinterpret_cast<const __half2*>(&pair);
    }
  } else {
    float floats[8];
    decode8(shape, row, chunk, floats);
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = __floats2half2_rn(floats[2 * i], floats[2 * i + 1]);
  }
}

template <CacheType kType, int kAlign>
__device__ __forceinline__ void RowReader<kType, kAlign>::decode8(const RowShape& shape,
                                                                  const std::byte* row, int chunk,
                                                                  float (&out)[8]) {
  if (!whole(shape, chunk)) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int e = 8 * chunk + i;
      out[i] = e < shape.dim ? decode_element<Widths::kUsual>(shape, row, e) : 0.0f;
    }
  } else if constexpr (kBits > 0) {
    const int group = chunk / 4;
    const uint2 codes = load_eight_codes<kBits, kAlign>(row + group * (4 * kBits), chunk % 4);
    const float scale = __half2float(load_scale<kAlign>(row + shape.code_bytes + 2 * group));
    quad_to_floats<kBits>(codes.x, scale, out);
    quad_to_floats<kBits>(codes.y, scale, out + 4);
  } else if constexpr (kType == CacheType::kF32) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint2 words = load_two_words<kAlign>(row + 32 * chunk + 8 * i);
      out[2 * i] = __uint_as_float(words.x);
      out[2 * i + 1] = __uint_as_float(words.y);
    }
  } else if constexpr (kType == CacheType::kFp8) {
    const uint2 codes = load_two_words<kAlign>(row + 8 * chunk);
    e4m3_quad_to_floats(codes.x, out);
    e4m3_quad_to_floats(codes.y, out + 4);
  } else {
    __half2 halves[4];
    decode8(shape, row, chunk, halves);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __half22float2(halves[i]);
      out[2 * i] = pair.x;
      out[2 * i + 1] = pair.y;
    }
  }
}

// ---- Groups, one lane an element
// All 32 lanes call. `count` is the size of the group; lanes beyond it must hold 0 and get 0.

// Rotates one group like rotate_kv_head() of ops/kv_codec.h. The rotation is its own inverse.
__device__ __forceinline__ float rotate_group(float y, int count) {
  const int lane = lane_index();
  const int run = count & -count;
#pragma unroll
  for (int stride = 1; stride < kKvScaleGroup; stride *= 2) {
    const float other = __shfl_xor_sync(kAllLanes, y, stride);
    const float turned = lane & stride ? other - y : y + other;
    y = stride < run ? turned : y;
  }
  // 1/√run, rounded to the nearest float.
  const float norm = run == 32   ? 0.17677669529663687f
                     : run == 16 ? 0.25f
                     : run == 8  ? 0.35355339059327373f
                     : run == 4  ? 0.5f
                     : run == 2  ? 0.70710678118654752f
                                 : 1.0f;
  y = exact_mul(y, norm);
  const int runs = count / run;
  if (runs > 1) {
    float sum = 0.0f;
    for (int r = 0; r < runs; ++r) {
      sum = exact_add(sum, __shfl_sync(kAllLanes, y, r * run + (lane & (run - 1))));
    }
    y = exact_add(y, -exact_mul(exact_div(2.0f, static_cast<float>(runs)), sum));
  }
  return lane < count ? y : 0.0f;
}

// Returns the scale of a group for few bits: of eight candidates, the one with the least squared
// error. The sums have the order that ops/kv_codec.h defines. In each of the first three exchanges
// a lane keeps half of its candidates, so that lanes 4c … 4c + 3 end up with the error of candidate
// c.
__device__ __forceinline__ float searched_scale(float y, float largest, int bits) {
  const int lane = lane_index();
  const int pair = lane >> 3;
  const float divisor = kv_scale_divisor(bits, pair);
  const auto half_levels = static_cast<float>(1 << (bits - 1));
  const float own = float_of_half(saturated_half(exact_div(largest, divisor)));
  const float own_inverse = inverse_of(own);
  float squares[8];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float scale = __shfl_sync(kAllLanes, own, 8 * j);
    const float inverse = __shfl_sync(kAllLanes, own_inverse, 8 * j);
    const float up = exact_add(y, -exact_mul(grid_index(y, inverse, half_levels), scale));
    const float down = exact_add(y, exact_mul(grid_index(y, -inverse, half_levels), scale));
    squares[2 * j] = exact_mul(up, up);
    squares[2 * j + 1] = exact_mul(down, down);
  }
#pragma unroll
  for (int kept = 4; kept > 0; kept /= 2) {
    const bool upper = lane & 4 * kept;
#pragma unroll
    for (int i = 0; i < kept; ++i) {
      const float mine = upper ? squares[kept + i] : squares[i];
      const float theirs = upper ? squares[i] : squares[kept + i];
      squares[i] = exact_add(mine, __shfl_xor_sync(kAllLanes, theirs, 4 * kept));
    }
  }
  float error = squares[0];
  error = exact_add(error, __shfl_xor_sync(kAllLanes, error, 2));
  error = exact_add(error, __shfl_xor_sync(kAllLanes, error, 1));
  // The bits of non-negative floats have the order of their values, with NaN above infinity.
  const std::uint32_t key = __float_as_uint(error) & 0x7fffffffu;
  std::uint32_t least = key;
#pragma unroll
  for (int distance = 16; distance >= 4; distance /= 2) {
    least = min(least, __shfl_xor_sync(kAllLanes, least, distance));
  }
  const int best = (__ffs(static_cast<int>(__ballot_sync(kAllLanes, key == least))) - 1) >> 2;
  const float scale = __shfl_sync(kAllLanes, own, best / 2 * 8);
  if (least >= 0x7f800000u) return 0.0f;
  return best % 2 != 0 ? -scale : scale;
}

// Returns the scale of a group as it is stored, converted to float.
template <Widths kWidths>
__device__ __forceinline__ float group_scale(float y, int bits) {
  constexpr bool kAny = kWidths == Widths::kAny;
  const float largest = warp_max(fabsf(y));
  if (largest == 0.0f) return 0.0f;
  if (kAny ? bits <= kKvSearchedBits : bits == 4) {
    return searched_scale(y, largest, kAny ? bits : 4);
  }
  const bool negative = __any_sync(kAllLanes, y == -largest);
  const float inverse = kAny        ? float_of_bits(static_cast<std::uint32_t>(128 - bits) << 23)
                        : bits == 8 ? 0x1p-7f
                                    : 0x1p-5f;  // 1/h
  const float step = exact_mul(largest, inverse);
  return float_of_half(saturated_half(negative ? step : -step));
}

// Writes the bit planes of a group's codes n, one code a lane (ops/kv_codec.h, Packing).
__device__ __forceinline__ void store_planes(int n, int count, int bits, std::byte* codes) {
  const int lane = lane_index();
  int lowest = 0;
#pragma unroll
  for (int width = 8; width > 0; width /= 2) {
    if ((bits & width) == 0) continue;
    const int bytes = (count * width + 7) / 8;
    int joined = 0;
#pragma unroll
    for (int j = 0; j < 8 / width; ++j) {
      const int part = __shfl_sync(kAllLanes, n, lane + j * bytes) >> lowest;
      joined |= (part & ((1 << width) - 1)) << (width * j);
    }
    if (lane < bytes) codes[lane] = static_cast<std::byte>(joined);
    codes += bytes;
    lowest += width;
  }
}

// Writes the codes and the scale of a rotated group. `codes` and `scale` may have any alignment.
template <Widths kWidths>
__device__ __forceinline__ void encode_int_group(float y, int count, int bits, std::byte* codes,
                                                 std::byte* scale) {
  const int lane = lane_index();
  const float stored = group_scale<kWidths>(y, bits);
  const std::uint16_t scale_bits = half_of_float(stored);
  if (lane < 2) scale[lane] = static_cast<std::byte>(scale_bits >> (8 * lane));
  const auto half_levels = static_cast<float>(1 << (bits - 1));
  const int n = static_cast<int>(grid_index(y, inverse_of(stored), half_levels) + half_levels);
  if constexpr (kWidths == Widths::kAny) {
    store_planes(n, count, bits, codes);
    return;
  }
  if (bits == 8) {
    if (lane < count) codes[lane] = static_cast<std::byte>(n);
    return;
  }
  const int half = (count + 1) / 2;
  const int far = __shfl_sync(kAllLanes, n, half + lane);
  if (lane < half) codes[lane] = static_cast<std::byte>((n & 15) | (far & 15) << 4);
  if (bits == 4) return;
  const int quarter = (count + 3) / 4;
  int pairs = n >> 4;
#pragma unroll
  for (int j = 1; j < 4; ++j) {
    pairs |= (__shfl_sync(kAllLanes, n, lane + j * quarter) >> 4) << (2 * j);
  }
  if (lane < quarter) codes[half + lane] = static_cast<std::byte>(pairs);
}

// Encodes and writes the group that begins at element `first` (a multiple of 32) of a row of any
// format. `y` is this lane's element, not rotated. Rows of kF32 and kF16 must be aligned to an
// element.
template <Widths kWidths>
__device__ __forceinline__ void encode_group(const RowShape& shape, int first, float y,
                                             std::byte* row) {
  const int count = group_size(shape, first);
  const int e = first + lane_index();
  if (shape.code == KvRow::Code::kInt) {
    encode_int_group<kWidths>(rotate_group(y, count), count, shape.bits,
                              row + first / 8 * shape.bits,
                              row + shape.code_bytes + first / kKvScaleGroup * 2);
  } else if (e < shape.dim) {
    if (shape.code == KvRow::Code::kF16) {
      reinterpret_cast<std::uint16_t*>(row)[e] = saturated_half(y);
    } else if (shape.code == KvRow::Code::kE4M3) {
      row[e] = static_cast<std::byte>(e4m3_of_float(y));
    } else {
      reinterpret_cast<float*>(row)[e] = y;
    }
  }
}

}  // namespace bl::cuda
