// Rows of the cache: the formats of ops/kv_codec.h, to the same bytes.

#include "backend/cpu/attention_simd.h"
#include "backend/cpu/simd/vec_bits.h"

namespace bl::cpu::BL_ISA {
namespace {

F32x16 load(const float* p, int n) { return n >= 16 ? F32x16::load(p) : F32x16::load_first(p, n); }

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

// Butterflies between lanes l and l ^ h of each vector: a + b where bit h is clear, else a − b.
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
  F32x16 low, high;  // elements 0 … 15 and 16 … 31, zeros behind a short group
};

struct Codes {
  F32x16 low, high;  // less the middle of the grid
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

float squared_error(const Group& y, float step) {
  const Codes codes = codes_of(y, step, 8.0f);
  const F32x16 s = F32x16::splat(step);
  const F32x16 a = y.low - codes.low * s;
  const F32x16 b = y.high - codes.high * s;
  return sum(a * a + b * b);
}

struct HalfScales {
  float value[16];
  std::uint16_t bits[16];
};

// largest / divisors, rounded to binary16.
HalfScales round_scales(float largest, const float (&divisors)[16]) {
  HalfScales scales;
  store_half(F32x16::splat(largest) / F32x16::load(divisors), scales.bits);
  F32x16::load_half(scales.bits).store(scales.value);
  return scales;
}

struct Scale {
  float value = 0.0f;
  std::uint16_t bits = 0;
};

Scale scale_of(const Group& y, int bits) {
  const float highest = max_lane(max(y.low, y.high));
  const float lowest_negated = max_lane(max(negate(y.low), negate(y.high)));
  const float extreme = highest > lowest_negated ? highest : -lowest_negated;
  if (extreme == 0.0f) return {};
  if (bits == 8) {
    constexpr float kDivisors[16] = {-128, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const HalfScales scales = round_scales(extreme, kDivisors);
    return {scales.value[0], scales.bits[0]};
  }
  constexpr float kDivisors[16] = {8.0f, -8.0f, 8.5f, -8.5f, 7.5f, -7.5f, 7.0f, -7.0f,
                                   1.0f, 1.0f,  1.0f, 1.0f,  1.0f, 1.0f,  1.0f, 1.0f};
  const HalfScales scales = round_scales(extreme < 0.0f ? -extreme : extreme, kDivisors);
  Scale best;
  float least = __builtin_inff();
  for (int i = 0; i < 8; ++i) {
    const float error = squared_error(y, scales.value[i]);
    if (error < least) {
      least = error;
      best = {scales.value[i], scales.bits[i]};
    }
  }
  return best;
}

void store_codes(const Codes& codes, int bits, int count, std::byte* out) {
  const I32x16 middle = I32x16::splat(1 << (bits - 1));
  const I32x16 low = round_to_int(codes.low) + middle;
  const I32x16 high = round_to_int(codes.high) + middle;
  std::uint8_t n[32];
  if (bits == 4 && count == kKvScaleGroup) {
    store_bytes(low + shift_left<4>(high), bytes_of(out));
    return;
  }
  store_bytes(low, n);
  store_bytes(high, n + 16);
  if (bits == 8) {
    __builtin_memcpy(out, n, static_cast<std::size_t>(count));
    return;
  }
  const int half = (count + 1) / 2;
  for (int i = 0; i < half; ++i) out[i] = static_cast<std::byte>(n[i] | (n[half + i] << 4));
}

void encode_groups(const RowFormat& format, const float* y, std::byte* row) {
  std::byte* scale = row + format.code_bytes;
  for (int begin = 0; begin < format.dim; begin += kKvScaleGroup, scale += 2) {
    const int count = format.dim - begin < kKvScaleGroup ? format.dim - begin : kKvScaleGroup;
    const Group group{load(y + begin, count),
                      count > 16 ? load(y + begin + 16, count - 16) : F32x16::splat(0.0f)};
    const Scale chosen = scale_of(group, format.bits);
    __builtin_memcpy(scale, &chosen.bits, 2);
    store_codes(codes_of(group, chosen.value, static_cast<float>(1 << (format.bits - 1))),
                format.bits, count, row + begin * format.bits / 8);
  }
}

// f(i, n) for runs of n ≤ 16 elements.
template <class F>
void for_runs(int count, const F& f) {
  for (int i = 0; i < count; i += 16) f(i, count - i < 16 ? count - i : 16);
}

void decode_int_value(const RowFormat& format, const std::byte* row, float* values) {
  const std::byte* scale = row + format.code_bytes;
  for (int begin = 0; begin < format.dim; begin += kKvScaleGroup, scale += 2) {
    const int count = format.dim - begin < kKvScaleGroup ? format.dim - begin : kKvScaleGroup;
    const float step = load_scale(scale);
    const std::uint8_t* codes = bytes_of(row) + begin * format.bits / 8;
    float* out = values + begin;
    if (count == kKvScaleGroup) {
      const F32x16 s = F32x16::splat(step);
      const F32x16 middle = F32x16::splat(format.bits == 8 ? 128.0f : 8.0f);
      const I32x16 first = I32x16::load_bytes(codes);
      const bool wide = format.bits == 8;
      const I32x16 low = wide ? first : first & I32x16::splat(15);
      const I32x16 high = wide ? I32x16::load_bytes(codes + 16) : shift_right<4>(first);
      ((to_float(low) - middle) * s).store(out);
      ((to_float(high) - middle) * s).store(out + 16);
      continue;
    }
    const int half = (count + 1) / 2;
    for (int i = 0; i < count; ++i) {
      const int n = format.bits == 8 ? codes[i] : i < half ? codes[i] & 15 : codes[i - half] >> 4;
      out[i] = static_cast<float>(n - (1 << (format.bits - 1))) * step;
    }
  }
}

// Sixteen keys: the same element of all of them is one vector.
void decode_int_keys(const RowFormat& format, const std::byte* run, float* keys) {
  const std::byte* scales = run + kLaneSlots * format.code_bytes;
  const F32x16 middle = F32x16::splat(format.bits == 8 ? 128.0f : 8.0f);
  for (int begin = 0; begin < format.dim; begin += kKvScaleGroup, scales += 2 * kLaneSlots) {
    const int count = format.dim - begin < kKvScaleGroup ? format.dim - begin : kKvScaleGroup;
    const F32x16 s = F32x16::load_half(scales);
    const std::uint8_t* codes = bytes_of(run) + begin * format.bits / 8 * kLaneSlots;
    float* out = keys + begin * kLaneSlots;
    if (format.bits == 8) {
      for (int i = 0; i < count; ++i) {
        ((to_float(I32x16::load_bytes(codes + i * 16)) - middle) * s).store(out + i * 16);
      }
      continue;
    }
    const int half = (count + 1) / 2;
    for (int i = 0; i < half; ++i) {
      const I32x16 pair = I32x16::load_bytes(codes + i * 16);
      ((to_float(pair & I32x16::splat(15)) - middle) * s).store(out + i * 16);
      if (half + i < count) {
        ((to_float(shift_right<4>(pair)) - middle) * s).store(out + (half + i) * 16);
      }
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
      encode_groups(format, room, row);
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
      decode_int_keys(format, run, keys);
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
      decode_int_value(format, row, values);
      return;
  }
}

}  // namespace bl::cpu::BL_ISA
