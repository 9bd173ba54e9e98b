// What the CUDA backend computes an element at a time, compiled for the host: formats of the cache
// and activations, against their definitions. Needs neither a card nor a CUDA compiler.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cuda/attention/kv_row_code.h"
#include "backend/cuda/ops/activation_math.cuh"
#include "backend/device.h"
#include "ops/kv_codec.h"

namespace bl::test {
namespace {

TEST(CudaRowCode, ConvertsEveryE4m3) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(cuda::float_of_e4m3(byte), e4m3_to_float(byte));
  }
  Random random(1);
  for (const float deviation : {1.0f, 1e-3f, 300.0f, 1e9f}) {
    for (const float value : random.normal(20000, deviation)) {
      ASSERT_EQ(cuda::e4m3_of_float(value), float_to_e4m3(value)) << value;
    }
  }
  for (const float value : {INFINITY, -INFINITY, NAN, 0.0f, -0.0f}) {
    EXPECT_EQ(cuda::e4m3_of_float(value), float_to_e4m3(value)) << value;
  }
}

TEST(CudaRowCode, DecodesElementsOfAllRows) {
  Random random(2);
  for (const CacheTypes type : kAllCacheTypes) {
    if (!type.are_one()) continue;  // the same rows
    for (int dim = 1; dim <= 260; ++dim) {
      const KvRow row = KvLayout{type, 1, dim, dim}.k_row();
      const std::vector<float> x = random.normal(dim);
      std::vector<std::byte> bytes(row.bytes());
      encode_kv_row(row, x.data(), bytes.data());
      std::vector<float> expected(x.size());
      decode_kv_row(row, bytes.data(), expected.data());
      const cuda::RowShape shape = cuda::row_shape(row);
      EXPECT_EQ(static_cast<std::size_t>(shape.bytes), row.bytes());
      const bool usual = cuda::widths_of(shape) == cuda::Widths::kUsual;
      for (int e = 0; e < dim; ++e) {
        const float wanted = expected[static_cast<std::size_t>(e)];
        ASSERT_EQ(cuda::decode_element<cuda::Widths::kAny>(shape, bytes.data(), e), wanted)
            << name_of(type) << " dim " << dim << " element " << e;
        if (!usual) continue;
        ASSERT_EQ(cuda::decode_element<cuda::Widths::kUsual>(shape, bytes.data(), e), wanted)
            << name_of(type) << " dim " << dim << " element " << e;
      }
    }
  }
}

std::uint32_t word_at(const std::byte* at) {
  std::uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

TEST(CudaRowCode, UnpacksWordsOfWholeGroups) {
  Random random(3);
  for (const int bits : {4, 6}) {
    const KvRow row{KvRow::Code::kInt, bits, 32};
    std::vector<std::byte> bytes(row.bytes());
    encode_kv_row(row, random.normal(32).data(), bytes.data());
    for (int w = 0; w < 4; ++w) {
      const std::uint32_t low = word_at(bytes.data() + 4 * w);
      const cuda::CodeQuads quads =
          bits == 4 ? cuda::nibble_quads(low)
                    : cuda::six_bit_quads(low, word_at(bytes.data() + 16 + 4 * (w % 2)), w);
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(static_cast<int>(quads.near >> 8 * i & 255u),
                  cuda::group_code<cuda::Widths::kUsual>(bytes.data(), 32, bits, 4 * w + i));
        EXPECT_EQ(static_cast<int>(quads.far >> 8 * i & 255u),
                  cuda::group_code<cuda::Widths::kUsual>(bytes.data(), 32, bits, 4 * w + 16 + i));
      }
    }
  }
}

TEST(CudaRowCode, UnpacksEightCodesOfAnyWidth) {
  Random random(5);
  for (int bits = 2; bits <= 8; ++bits) {
    const KvRow row{KvRow::Code::kInt, bits, 32};
    std::vector<std::byte> bytes(row.bytes());
    std::vector<float> decoded(32);
    encode_kv_row(row, random.normal(32).data(), bytes.data());
    decode_kv_row(row, bytes.data(), decoded.data());
    const cuda::RowShape shape = cuda::row_shape(row);
    const float scale = cuda::float_of_half(cuda::read_half(bytes.data() + shape.code_bytes));
    for (int part = 0; part < 4; ++part) {
      const cuda::EightCodes codes = cuda::eight_codes(bits, part, [&](int word) {
        EXPECT_LT(word, bits);
        return word_at(bytes.data() + 4 * word);
      });
      for (int i = 0; i < 8; ++i) {
        const std::uint32_t four = i < 4 ? codes.first : codes.second;
        const auto n = static_cast<int>(four >> (8 * (i % 4)) & 255u);
        EXPECT_EQ(static_cast<float>(n - (1 << (bits - 1))) * scale,
                  decoded[static_cast<std::size_t>(8 * part + i)])
            << bits << " bits, element " << 8 * part + i;
      }
    }
  }
}

TEST(CudaActivation, GivesWhatRefGives) {
  Device ref("ref");
  Random random(4);
  std::vector<float> gate = random.normal(500, 3.0f);
  std::vector<float> up = random.normal(500, 3.0f);
  for (const float extreme : {0.0f, -0.0f, 1e-8f, -1e-8f, 95.0f, -95.0f, 1e4f, -1e4f}) {
    gate.push_back(extreme);
    up.push_back(extreme);
  }
  const Shape shape{1, static_cast<std::int64_t>(gate.size())};
  for (int kind = 0; kind <= static_cast<int>(Activation::kSwigluOai); ++kind) {
    for (const float limit : {0.0f, 2.5f}) {
      for (const bool after : {false, true}) {
        for (const bool gated : {false, true}) {
          ActivateArgs args{.gate = ref.put(gate, shape),
                            .up = gated ? ref.put(up, shape) : TensorView{},
                            .out = ref.put(std::vector<float>(gate.size()), shape),
                            .kind = static_cast<Activation>(kind),
                            .limit = limit,
                            .limit_after = after,
                            .xielu_alpha_p = 0.8f,
                            .xielu_alpha_n = 1.3f};
          ref.ops().activate(ref.context(), args);
          std::vector<float> ours;
          const cuda::ActivationParameters parameters = cuda::activation_parameters(args);
          for (std::size_t i = 0; i < gate.size(); ++i) {
            ours.push_back(cuda::activated(parameters, gate[i], up[i], gated));
          }
          EXPECT_LE(worst_difference(ours, ref.get(args.out)), 3e-6)
              << "kind " << kind << " limit " << limit << " gated " << gated;
        }
      }
    }
  }
  const cuda::ActivationParameters relu{.kind = Activation::kRelu, .limit = 1.0f};
  EXPECT_TRUE(std::isnan(cuda::activated(relu, NAN, 0.0f, false)));
}

}  // namespace
}  // namespace bl::test
