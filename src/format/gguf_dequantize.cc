#include "format/gguf_dequantize.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace bl {
namespace {

using Byte = std::uint8_t;

template <class T>
T load(const Byte* source) {
  T value;
  std::memcpy(&value, source, sizeof value);
  return value;
}
float load_half(const Byte* source) { return half_to_float(load<std::uint16_t>(source)); }

// Each function below decodes one group of one type: it reads the group and writes its elements.

void group_f32(const Byte* in, float* out) { *out = load<float>(in); }
void group_f16(const Byte* in, float* out) { *out = load_half(in); }
void group_bf16(const Byte* in, float* out) {
  *out = std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(in)) << 16);
}

// The low nibbles of 16 bytes are elements 0 to 15, the high nibbles elements 16 to 31.
void group_q4_0(const Byte* in, float* out) {
  const float d = load_half(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((in[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((in[2 + i] >> 4) - 8);
  }
}

void group_q4_1(const Byte* in, float* out) {
  const float d = load_half(in);
  const float m = load_half(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(in[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(in[4 + i] >> 4) + m;
  }
}

// Bit i of a 32-bit word is the fifth bit of element i.
void group_q5_0(const Byte* in, float* out) {
  const float d = load_half(in);
  const std::uint32_t high = load<std::uint32_t>(in + 2);
  for (int i = 0; i < 16; ++i) {
    const int low_bit = static_cast<int>((high >> i) & 1u) << 4;
    const int high_bit = static_cast<int>((high >> (i + 16)) & 1u) << 4;
    out[i] = d * static_cast<float>(((in[6 + i] & 15) | low_bit) - 16);
    out[i + 16] = d * static_cast<float>(((in[6 + i] >> 4) | high_bit) - 16);
  }
}

void group_q5_1(const Byte* in, float* out) {
  const float d = load_half(in);
  const float m = load_half(in + 2);
  const std::uint32_t high = load<std::uint32_t>(in + 4);
  for (int i = 0; i < 16; ++i) {
    const int low_bit = static_cast<int>((high >> i) & 1u) << 4;
    const int high_bit = static_cast<int>((high >> (i + 16)) & 1u) << 4;
    out[i] = d * static_cast<float>((in[8 + i] & 15) | low_bit) + m;
    out[i + 16] = d * static_cast<float>((in[8 + i] >> 4) | high_bit) + m;
  }
}

void group_q8_0(const Byte* in, float* out) {
  const float d = load_half(in);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(in[2 + i]));
  }
}

// Two halves of 128 elements. In each, four runs of 32 elements share 32 bytes, two bits each.
// There is a scale and a minimum for every 16 elements.
void group_q2_k(const Byte* in, float* out) {
  const Byte* scales = in;
  const Byte* codes = in + 16;
  const float d = load_half(in + 80);
  const float m = load_half(in + 82);
  for (int run = 0; run < 8; ++run) {
    const Byte* bytes = codes + run / 4 * 32;
    const int shift = run % 4 * 2;
    for (int half = 0; half < 2; ++half) {
      const Byte scale = scales[run * 2 + half];
      const float step = d * static_cast<float>(scale & 15);
      const float low = m * static_cast<float>(scale >> 4);
      for (int i = 0; i < 16; ++i) {
        *out++ = step * static_cast<float>((bytes[half * 16 + i] >> shift) & 3) - low;
      }
    }
  }
}

// Laid out as Q2_K, with a third bit per element: bit `run` of mask[at]. There is no minimum.
void group_q3_k(const Byte* in, float* out) {
  const Byte* mask = in;
  const Byte* codes = in + 32;
  const Byte* packed = in + 96;  // 16 scales of 6 bits: low nibbles in 8 bytes, high pairs in 4
  const float d = load_half(in + 108);
  for (int run = 0; run < 8; ++run) {
    const Byte* bytes = codes + run / 4 * 32;
    const int shift = run % 4 * 2;
    for (int half = 0; half < 2; ++half) {
      const int s = run * 2 + half;
      const int low = (packed[s % 8] >> (s / 8 * 4)) & 15;
      const int high = (packed[8 + s % 4] >> (s / 4 * 2)) & 3;
      const float step = d * static_cast<float>((low | (high << 4)) - 32);
      for (int i = 0; i < 16; ++i) {
        const int at = half * 16 + i;
        const int third = (mask[at] >> run) & 1;  // if set, nothing is subtracted
        *out++ = step * static_cast<float>(((bytes[at] >> shift) & 3) - (third ^ 1) * 4);
      }
    }
  }
}

// The 6-bit scale and minimum of run s of 8, from the 12 packed bytes of Q4_K and Q5_K.
struct ScaleMin {
  int scale;
  int minimum;
};
ScaleMin scale_min(const Byte* packed, int s) {
  if (s < 4) return {packed[s] & 63, packed[s + 4] & 63};
  return {(packed[s + 4] & 15) | ((packed[s - 4] >> 6) << 4),
          (packed[s + 4] >> 4) | ((packed[s] >> 6) << 4)};
}

// Decodes 8 runs of 32 elements. Their low nibbles start at `nibbles`; fifth(run, i) returns 0 or
// 16.
template <class Fifth>
void group_of_scale_min(const Byte* in, const Byte* nibbles, float* out, const Fifth& fifth) {
  const float d = load_half(in);
  const float m = load_half(in + 2);
  for (int run = 0; run < 8; ++run) {
    const auto [scale, minimum] = scale_min(in + 4, run);
    const float step = d * static_cast<float>(scale);
    const float low = m * static_cast<float>(minimum);
    const Byte* bytes = nibbles + run / 2 * 32;
    const int shift = run % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int code = ((bytes[i] >> shift) & 15) | fifth(run, i);
      out[run * 32 + i] = step * static_cast<float>(code) - low;
    }
  }
}

void group_q4_k(const Byte* in, float* out) {
  group_of_scale_min(in, in + 16, out, [](int, int) { return 0; });
}

void group_q5_k(const Byte* in, float* out) {
  const Byte* high = in + 16;
  group_of_scale_min(in, in + 48, out,
                     [high](int run, int i) { return ((high[i] >> run) & 1) << 4; });
}

// Two halves of 128 elements, each of four runs of 32: 64 bytes of low nibbles, 32 bytes of high
// pairs. There is a scale for every 16 elements.
void group_q6_k(const Byte* in, float* out) {
  const float d = load_half(in + 208);
  for (int run = 0; run < 8; ++run) {
    const int half = run / 4;
    const int quarter = run % 4;
    const Byte* low = in + half * 64 + quarter % 2 * 32;
    const Byte* high = in + 128 + half * 32;
    const int low_shift = quarter / 2 * 4;
    const int high_shift = quarter * 2;
    for (int i = 0; i < 32; ++i) {
      const auto scale = static_cast<std::int8_t>(in[192 + run * 2 + i / 16]);
      const int code = ((low[i] >> low_shift) & 15) | (((high[i] >> high_shift) & 3) << 4);
      out[run * 32 + i] = d * static_cast<float>(scale) * static_cast<float>(code - 32);
    }
  }
}

constexpr float kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

void group_iq4_nl(const Byte* in, float* out) {
  const float d = load_half(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * kIq4Values[in[2 + i] & 15];
    out[i + 16] = d * kIq4Values[in[2 + i] >> 4];
  }
}

void group_iq4_xs(const Byte* in, float* out) {
  const float d = load_half(in);
  const std::uint16_t high = load<std::uint16_t>(in + 2);
  for (int run = 0; run < 8; ++run) {
    const int low = (in[4 + run / 2] >> (run % 2 * 4)) & 15;
    const float step = d * static_cast<float>((low | (((high >> (run * 2)) & 3) << 4)) - 32);
    const Byte* bytes = in + 8 + run * 16;
    for (int i = 0; i < 16; ++i) {
      out[run * 32 + i] = step * kIq4Values[bytes[i] & 15];
      out[run * 32 + 16 + i] = step * kIq4Values[bytes[i] >> 4];
    }
  }
}

// OCP microscaling: a power-of-two scale and 32 four-bit floats (E2M1). The table holds doubled
// values, and the scale is halved to match.
void group_mxfp4(const Byte* in, float* out) {
  constexpr float kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const float d = std::ldexp(1.0f, static_cast<int>(in[0]) - 128);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * kDoubled[in[1 + i] & 15];
    out[i + 16] = d * kDoubled[in[1 + i] >> 4];
  }
}

template <void (*Group)(const Byte*, float*)>
void each_group(const GgufTypeInfo& type, const Byte* in, std::span<float> values) {
  const auto elements = static_cast<std::size_t>(type.group_elements);
  for (std::size_t done = 0; done < values.size(); done += elements) {
    Group(in, values.data() + done);
    in += type.group_bytes;
  }
}

}  // namespace

void dequantize_gguf(GgufType type, std::span<const std::byte> source, std::span<float> values) {
  const GgufTypeInfo& info = info_of(type);
  const auto elements = static_cast<std::size_t>(info.group_elements);
  BL_CHECK(values.size() % elements == 0);
  BL_CHECK(source.size() == values.size() / elements * static_cast<std::size_t>(info.group_bytes));
  const auto* in = reinterpret_cast<const Byte*>(source.data());
  switch (type) {
    case GgufType::kF32:
      return each_group<group_f32>(info, in, values);
    case GgufType::kF16:
      return each_group<group_f16>(info, in, values);
    case GgufType::kBF16:
      return each_group<group_bf16>(info, in, values);
    case GgufType::kQ4_0:
      return each_group<group_q4_0>(info, in, values);
    case GgufType::kQ4_1:
      return each_group<group_q4_1>(info, in, values);
    case GgufType::kQ5_0:
      return each_group<group_q5_0>(info, in, values);
    case GgufType::kQ5_1:
      return each_group<group_q5_1>(info, in, values);
    case GgufType::kQ8_0:
      return each_group<group_q8_0>(info, in, values);
    case GgufType::kQ2K:
      return each_group<group_q2_k>(info, in, values);
    case GgufType::kQ3K:
      return each_group<group_q3_k>(info, in, values);
    case GgufType::kQ4K:
      return each_group<group_q4_k>(info, in, values);
    case GgufType::kQ5K:
      return each_group<group_q5_k>(info, in, values);
    case GgufType::kQ6K:
      return each_group<group_q6_k>(info, in, values);
    case GgufType::kIq4Nl:
      return each_group<group_iq4_nl>(info, in, values);
    case GgufType::kIq4Xs:
      return each_group<group_iq4_xs>(info, in, values);
    case GgufType::kMxfp4:
      return each_group<group_mxfp4>(info, in, values);
  }
  BL_CHECK(false);
}

bool round_to_half(std::span<const float> values, std::span<Half> halves) {
  BL_CHECK(values.size() == halves.size());
  const float* in = values.data();
  Half* out = halves.data();
  std::uint32_t too_large = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(in[i]);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t normal = magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u);
    // Below the smallest normal half: after adding 0.5, float itself rounds at the half's last bit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    const std::uint32_t small = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
    std::uint32_t half = magnitude < 0x38800000u ? small : normal >> 13;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;
    half = magnitude > 0x7f800000u ? 0x7e00u : half;
    too_large |= static_cast<std::uint32_t>(magnitude >= 0x477ff000u) &
                 static_cast<std::uint32_t>(magnitude < 0x7f800000u);
    out[i].bits = static_cast<std::uint16_t>(half | ((bits >> 16) & 0x8000u));
  }
  return too_large == 0;
}

}  // namespace bl
