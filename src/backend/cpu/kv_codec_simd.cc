// Encodes and decodes rows of the cache as ops/kv_codec.h defines them, with the same bytes.
//
// Codes of 8, 6 and 4 bits (kUsual) have specialized functions. Other widths are used less often
// and are processed plane by plane.

#include "backend/cpu/attention_simd.h"
#include "backend/cpu/kv_planes_simd.h"
#include "backend/cpu/simd/vec_bits.h"
#include "backend/cpu/simd/vec_runs.h"
#include "ops/kv_codec.h"

namespace bl::cpu::BL_ISA {
namespace {

constexpr bool is_usual(int bits) { return bits == 8 || bits == 6 || bits == 4; }

F32x16 negate(F32x16 x) { return F32x16::splat(0.0f) - x; }

const std::uint8_t* bytes_of(const std::byte* p) {
  return reinterpret_cast<const std::uint8_t*>(p);
}
std::uint8_t* bytes_of(std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); }

float load_scale(const std::byte* p) {
  float lanes[16];
  F32x16::load_half_first(p, 1).store(lanes);
  return lanes[0];
}

// Butterflies between lanes l and l ^ h of each vector: a + b where bit h is clear, a − b
// elsewhere.
template <int h>
void butterflies(float* x, int count) {
  float sign[16];
  for (int l = 0; l < 16; ++l) sign[l] = (l & h) != 0 ? -1.0f : 1.0f;
  const F32x16 s = F32x16::load(sign);
  for (int i = 0; i < count; i += 16) {
    const F32x16 v = F32x16::load(x + i);
    (swap_lanes<h>(v) + v * s).store(x + i);
  }
}

void transform_run(float* x, int run) {
  int stride = 1;
  if (run >= 16) {
    butterflies<1>(x, run);
    butterflies<2>(x, run);
    butterflies<4>(x, run);
    butterflies<8>(x, run);
    for (stride = 16; stride < run; stride *= 2) {
      for (int begin = 0; begin < run; begin += 2 * stride) {
        for (int i = begin; i < begin + stride; i += 16) {
          const F32x16 a = F32x16::load(x + i);
          const F32x16 b = F32x16::load(x + i + stride);
          (a + b).store(x + i);
          (a - b).store(x + i + stride);
        }
      }
    }
    return;
  }
  for (; stride < run; stride *= 2) {
    for (int i = 0; i < run; ++i) {
      if ((i & stride) != 0) continue;
      const float a = x[i];
      const float b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
}

void reflect_runs(float* x, int run, int runs) {
  const float share = 2.0f / static_cast<float>(runs);
  for (int i = 0; i < run; ++i) {
    float total = 0.0f;
    for (int r = 0; r < runs; ++r) total += x[r * run + i];
    const float part = share * total;
    for (int r = 0; r < runs; ++r) x[r * run + i] -= part;
  }
}

struct Group {
  F32x16 low, high;  // elements 0 … 15 and 16 … 31; zeros beyond a short group
};

struct Codes {
  F32x16 low, high;  // relative to the middle of the grid
};

Codes codes_of(const Group& y, float step, float half_levels) {
  const F32x16 inverse = F32x16::splat(step != 0.0f ? 1.0f / step : 0.0f);
  const F32x16 lowest = F32x16::splat(-half_levels);
  const F32x16 highest = F32x16::splat(half_levels - 1.0f);
  const auto code = [&](F32x16 v) {
    return to_float(round_to_int(min(max(v * inverse, lowest), highest)));
  };
  return {code(y.low), code(y.high)};
}

float squared_error(const Group& y, float step, float half_levels) {
  const Codes codes = codes_of(y, step, half_levels);
  const F32x16 s = F32x16::splat(step);
  const F32x16 a = y.low - codes.low * s;
  const F32x16 b = y.high - codes.high * s;
  return sum(a * a + b * b);
}

struct HalfScales {
  float value[16];
  std::uint16_t bits[16];
};

HalfScales round_scales(F32x16 exact) {
  HalfScales scales;
  store_half(exact, scales.bits);
  F32x16::load_half(scales.bits).store(scales.value);
  return scales;
}

struct Scale {
  float value = 0.0f;
  std::uint16_t bits = 0;
};

// The divisors of the largest magnitude that give the candidate scales.
template <int kBits>
struct Divisors {
  static constexpr int kTried = 2 * kKvScaleDivisors;
  float of[16] = {};
  constexpr Divisors() {
    for (int i = 0; i < 16; ++i) {
      const float divisor = i < kTried ? kv_scale_divisor(kBits, i / 2) : 1.0f;
      of[i] = i % 2 == 0 ? divisor : -divisor;
    }
  }
};

// Returns the best candidate scale for a group whose largest magnitude is `largest`.
template <int kBits>
Scale search_scale(const Group& y, float largest) {
  static constexpr Divisors<kBits> kDivisors;
  const HalfScales scales = round_scales(F32x16::splat(largest) / F32x16::load(kDivisors.of));
  Scale best;
  float least = __builtin_inff();
  for (int i = 0; i < Divisors<kBits>::kTried; ++i) {
    const float error = squared_error(y, scales.value[i], static_cast<float>(1 << (kBits - 1)));
    if (error < least) {
      least = error;
      best = {scales.value[i], scales.bits[i]};
    }
  }
  return best;
}

template <bool kUsual>
Scale scale_of(const Group& y, int bits) {
  const float highest = max_lane(max(y.low, y.high));
  const float lowest_negated = max_lane(max(negate(y.low), negate(y.high)));
  const float extreme = highest > lowest_negated ? highest : -lowest_negated;
  if (extreme == 0.0f) return {};
  const float largest = extreme < 0.0f ? -extreme : extreme;
  if constexpr (kUsual) {
    if (bits == 4) return search_scale<4>(y, largest);
  } else {
    static_assert(kKvSearchedBits == 5);
    if (bits == 5) return search_scale<5>(y, largest);
    if (bits == 3) return search_scale<3>(y, largest);
    if (bits == 2) return search_scale<2>(y, largest);
  }
  const auto half_levels = static_cast<float>(1 << (bits - 1));
  const HalfScales scales = round_scales(F32x16::splat(extreme / -half_levels));
  return {scales.value[0], scales.bits[0]};
}

// Stores bits 4 and 5 of the codes of a whole group. First those of element l go to bits 0 and 1 of
// byte l, and those of element l + 16 to bits 4 and 5; then the upper eight bytes are merged into
// the lower ones.
void store_pairs(I32x16 low, I32x16 high, std::byte* out) {
  std::uint8_t spread[16];
  store_bytes(shift_right<4>(low) + (high & I32x16::splat(48)), spread);
  const std::uint64_t pairs = load_eight(spread) | load_eight(spread + 8) << 2;
  __builtin_memcpy(out, &pairs, 8);
}

// Packs codes as encode_group() in ops/kv_codec.cc does, for a group that may be short.
void pack_codes(const std::uint8_t* n, int bits, int count, std::byte* out) {
  const int half = (count + 1) / 2;
  for (int i = 0; i < half; ++i) {
    out[i] = static_cast<std::byte>((n[i] & 15) | ((n[half + i] & 15) << 4));
  }
  if (bits != 6) return;
  const int quarter = (count + 3) / 4;
  for (int i = 0; i < quarter; ++i) {
    out[half + i] =
        static_cast<std::byte>(n[i] >> 4 | (n[i + quarter] >> 4) << 2 |
                               (n[i + 2 * quarter] >> 4) << 4 | (n[i + 3 * quarter] >> 4) << 6);
  }
}

void store_codes(const Codes& codes, int bits, int count, std::byte* out) {
  const I32x16 middle = I32x16::splat(1 << (bits - 1));
  const I32x16 low = round_to_int(codes.low) + middle;
  const I32x16 high = round_to_int(codes.high) + middle;
  if (bits != 8 && count == kKvScaleGroup) {
    const I32x16 nibble = I32x16::splat(15);
    store_bytes((low & nibble) + shift_left<4>(high & nibble), bytes_of(out));
    if (bits == 6) store_pairs(low, high, out + 16);
    return;
  }
  std::uint8_t n[kKvScaleGroup];
  store_bytes(low, n);
  store_bytes(high, n + 16);
  if (bits == 8) {
    __builtin_memcpy(out, n, static_cast<std::size_t>(count));
    return;
  }
  pack_codes(n, bits, count, out);
}

void store_planes(const Codes& codes, int bits, int count, std::byte* out) {
  const I32x16 middle = I32x16::splat(1 << (bits - 1));
  std::uint8_t n[kKvScaleGroup];
  store_bytes(round_to_int(codes.low) + middle, n);
  store_bytes(round_to_int(codes.high) + middle, n + 16);
  if (count == kKvScaleGroup) {
    pack_whole_group(n, bits, bytes_of(out));
  } else {
    pack_group(n, bits, count, bytes_of(out));
  }
}

template <bool kUsual>
void encode_groups(const RowFormat& format, const float* y, std::byte* row) {
  std::byte* scale = row + format.code_bytes;
  for (int begin = 0; begin < format.dim; begin += kKvScaleGroup, scale += 2) {
    const int count = format.dim - begin < kKvScaleGroup ? format.dim - begin : kKvScaleGroup;
    const Group group{load(y + begin, count),
                      count > 16 ? load(y + begin + 16, count - 16) : F32x16::splat(0.0f)};
    const Scale chosen = scale_of<kUsual>(group, format.bits);
    __builtin_memcpy(scale, &chosen.bits, 2);
    const Codes codes = codes_of(group, chosen.value, static_cast<float>(1 << (format.bits - 1)));
    std::byte* out = row + begin * format.bits / 8;
    if constexpr (kUsual) {
      store_codes(codes, format.bits, count, out);
    } else {
      store_planes(codes, format.bits, count, out);
    }
  }
}

// The codes of a whole group: elements 0 … 15 and 16 … 31.
struct GroupCodes {
  I32x16 low, high;
};

template <bool kUsual>
GroupCodes load_codes(const std::uint8_t* codes, int bits) {
  if constexpr (!kUsual) {
    std::uint8_t n[kKvScaleGroup];
    unpack_whole_group(codes, bits, n);
    return {I32x16::load_bytes(n), I32x16::load_bytes(n + 16)};
  }
  const I32x16 first = I32x16::load_bytes(codes);
  if (bits == 8) return {first, I32x16::load_bytes(codes + 16)};
  const GroupCodes nibbles{first & I32x16::splat(15), shift_right<4>(first)};
  if (bits == 4) return nibbles;
  // The inverse of store_pairs().
  const std::uint64_t joined = load_eight(codes + 16);
  const std::uint64_t spread[2] = {joined, joined >> 2};
  std::uint8_t bytes[16];
  __builtin_memcpy(bytes, spread, 16);
  const I32x16 pairs = I32x16::load_bytes(bytes);
  return {nibbles.low + shift_left<4>(pairs & I32x16::splat(3)),
          nibbles.high + (pairs & I32x16::splat(48))};
}

template <bool kUsual>
int code_at(const std::uint8_t* codes, int bits, int count, int i) {
  if constexpr (!kUsual) return code_in_group(codes, bits, count, i);
  if (bits == 8) return codes[i];
  const int half = (count + 1) / 2;
  const int quarter = (count + 3) / 4;
  const int nibble = i < half ? codes[i] & 15 : codes[i - half] >> 4;
  if (bits == 4) return nibble;
  return nibble | ((codes[half + i % quarter] >> (2 * (i / quarter))) & 3) << 4;
}

template <bool kUsual>
void decode_int_value(const RowFormat& format, const std::byte* row, float* values) {
  const std::byte* scale = row + format.code_bytes;
  const int half_levels = 1 << (format.bits - 1);
  for (int begin = 0; begin < format.dim; begin += kKvScaleGroup, scale += 2) {
    const int count = format.dim - begin < kKvScaleGroup ? format.dim - begin : kKvScaleGroup;
    const float step = load_scale(scale);
    const std::uint8_t* codes = bytes_of(row) + begin * format.bits / 8;
    float* out = values + begin;
    if (count == kKvScaleGroup) {
      const F32x16 s = F32x16::splat(step);
      const I32x16 middle = I32x16::splat(half_levels);
      const GroupCodes n = load_codes<kUsual>(codes, format.bits);
      (to_float(n.low - middle) * s).store(out);
      (to_float(n.high - middle) * s).store(out + 16);
      continue;
    }
    for (int i = 0; i < count; ++i) {
      out[i] =
          static_cast<float>(code_at<kUsual>(codes, format.bits, count, i) - half_levels) * step;
    }
  }
}

// Not inlined, so that the common widths do not save registers for it.
[[gnu::noinline]] void decode_planes_value(const RowFormat& format, const std::byte* row,
                                           float* values) {
  decode_int_value<false>(format, row, values);
}

// A group of sixteen keys abreast: one vector holds the same element of all keys, and so does each
// code byte.
struct KeyGroup {
  const std::uint8_t* codes = nullptr;  // [bytes of the group][16]
  int count = 0;
  int half_levels = 0;
  F32x16 scale;
  float* keys = nullptr;  // [count][16]
  void put(int i, I32x16 n) const {
    (to_float(n - I32x16::splat(half_levels)) * scale).store(keys + i * 16);
  }
};

void decode_bytes(const KeyGroup& g) {
  for (int i = 0; i < g.count; ++i) g.put(i, I32x16::load_bytes(g.codes + i * 16));
}

void decode_nibbles(const KeyGroup& g) {
  const int half = (g.count + 1) / 2;
  for (int i = 0; i < half; ++i) {
    const I32x16 pair = I32x16::load_bytes(g.codes + i * 16);
    g.put(i, pair & I32x16::splat(15));
    if (half + i < g.count) g.put(half + i, shift_right<4>(pair));
  }
}

void decode_six_bits(const KeyGroup& g) {
  const int half = (g.count + 1) / 2;
  const int quarter = (g.count + 3) / 4;
  const auto nibble = [&](int i) {
    const I32x16 pair = I32x16::load_bytes(g.codes + (i < half ? i : i - half) * 16);
    return i < half ? pair & I32x16::splat(15) : shift_right<4>(pair);
  };
  for (int i = 0; i < quarter; ++i) {
    const I32x16 top = I32x16::load_bytes(g.codes + (half + i) * 16);
    const I32x16 high[4] = {shift_left<4>(top & I32x16::splat(3)),
                            shift_left<2>(top & I32x16::splat(12)), top & I32x16::splat(48),
                            shift_right<2>(top & I32x16::splat(192))};
    for (int j = 0; j < 4 && i + j * quarter < g.count; ++j) {
      g.put(i + j * quarter, nibble(i + j * quarter) + high[j]);
    }
  }
}

// For any width: joins the bytes of an element's planes for sixteen keys, eight at a time in a
// word.
void decode_planes(const KeyGroup& g, int bits) {
  for (int i = 0; i < g.count; ++i) {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    for_planes(bits, g.count, [&](const Plane& plane) {
      const std::uint8_t* at = g.codes + (plane.begin + i % plane.bytes) * kLaneSlots;
      const int place = i / plane.bytes * plane.width;
      first |= (load_eight(at) >> place & plane.mask()) << plane.lowest;
      second |= (load_eight(at + 8) >> place & plane.mask()) << plane.lowest;
    });
    const std::uint64_t joined[2] = {first, second};
    std::uint8_t n[kLaneSlots];
    __builtin_memcpy(n, joined, sizeof n);
    g.put(i, I32x16::load_bytes(n));
  }
}

template <bool kUsual>
void decode_int_keys(const RowFormat& format, const std::byte* run, float* keys) {
  const std::byte* scales = run + kLaneSlots * format.code_bytes;
  for (int begin = 0; begin < format.dim; begin += kKvScaleGroup, scales += 2 * kLaneSlots) {
    const KeyGroup group{
        .codes = bytes_of(run) + begin * format.bits / 8 * kLaneSlots,
        .count = format.dim - begin < kKvScaleGroup ? format.dim - begin : kKvScaleGroup,
        .half_levels = 1 << (format.bits - 1),
        .scale = F32x16::load_half(scales),
        .keys = keys + begin * kLaneSlots};
    if constexpr (!kUsual) {
      decode_planes(group, format.bits);
    } else if (format.bits == 8) {
      decode_bytes(group);
    } else if (format.bits == 4) {
      decode_nibbles(group);
    } else {
      decode_six_bits(group);
    }
  }
}

void rotate_group(float* x, int count) {
  const int run = count & -count;
  const int runs = count / run;
  const auto norm = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(run)));
  for (int r = 0; r < runs; ++r) {
    float* y = x + r * run;
    transform_run(y, run);
    for (int i = 0; i < run; ++i) y[i] *= norm;
  }
  if (runs > 1) reflect_runs(x, run, runs);
}

}  // namespace

void rotate_head(float* x, int dim) {
  for (int begin = 0; begin < dim; begin += kKvScaleGroup) {
    rotate_group(x + begin, dim - begin < kKvScaleGroup ? dim - begin : kKvScaleGroup);
  }
}

void encode_row(const RowFormat& format, const float* x, float* room, std::byte* row) {
  switch (format.code) {
    case KvRow::Code::kF32:
      __builtin_memcpy(row, x, format.bytes);
      return;
    case KvRow::Code::kF16:
      for_runs(format.dim, [&](int i, int n) {
        std::uint16_t half[16];
        store_half(load(x + i, n), half);
        __builtin_memcpy(row + 2 * i, half, static_cast<std::size_t>(2 * n));
      });
      return;
    case KvRow::Code::kE4M3:
      for_runs(format.dim, [&](int i, int n) {
        std::uint8_t codes[16];
        store_e4m3(load(x + i, n), codes);
        __builtin_memcpy(row + i, codes, static_cast<std::size_t>(n));
      });
      return;
    case KvRow::Code::kInt:
      __builtin_memcpy(room, x, static_cast<std::size_t>(format.dim) * sizeof(float));
      rotate_head(room, format.dim);
      if (!is_usual(format.bits)) return encode_groups<false>(format, room, row);
      encode_groups<true>(format, room, row);
      return;
  }
}

void decode_keys(const RowFormat& format, const std::byte* run, float* keys) {
  switch (format.code) {
    case KvRow::Code::kF32:
      __builtin_memcpy(keys, run, kLaneSlots * format.bytes);
      return;
    case KvRow::Code::kF16:
      for (int d = 0; d < format.dim; ++d) F32x16::load_half(run + d * 32).store(keys + d * 16);
      return;
    case KvRow::Code::kE4M3:
      for (int d = 0; d < format.dim; ++d) load_e4m3(bytes_of(run) + d * 16).store(keys + d * 16);
      return;
    case KvRow::Code::kInt:
      if (!is_usual(format.bits)) return decode_int_keys<false>(format, run, keys);
      decode_int_keys<true>(format, run, keys);
      return;
  }
}

void decode_value(const RowFormat& format, const std::byte* row, float* values) {
  switch (format.code) {
    case KvRow::Code::kF32:
      __builtin_memcpy(values, row, format.bytes);
      return;
    case KvRow::Code::kF16:
      for_runs(format.dim, [&](int i, int n) {
        const std::byte* p = row + 2 * i;
        (n == 16 ? F32x16::load_half(p) : F32x16::load_half_first(p, n)).store(values + i);
      });
      return;
    case KvRow::Code::kE4M3:
      for_runs(format.dim, [&](int i, int n) {
        std::uint8_t codes[16] = {};
        __builtin_memcpy(codes, row + i, static_cast<std::size_t>(n));
        load_e4m3(codes).store(values + i);
      });
      return;
    case KvRow::Code::kInt:
      if (!is_usual(format.bits)) return decode_planes_value(format, row, values);
      decode_int_value<true>(format, row, values);
      return;
  }
}

}  // namespace bl::cpu::BL_ISA
