// matmul with EXL2 and GPTQ matrices on every backend, against sums in double over the exact
// values.

#include <gtest/gtest.h>

#include <cmath>

#include "backend/device.h"
#include "format/dequantize.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

// Exact products of the codes, without the rounding of each weight to binary16: kernels may do
// either.
struct NamedMatrix {
  std::string name;
  WeightMatrix matrix;
};

std::vector<NamedMatrix> named_matrices() {
  Engine random(31);
  std::vector<NamedMatrix> result;
  const auto exl2 = [&](const char* name, const std::vector<GroupShape>& groups, std::int64_t out) {
    result.push_back({name, random_exl2(groups, out, random)});
  };
  exl2("exl2 4 bits", std::vector<GroupShape>(8, {4, 128}), 512);
  exl2("exl2 mix", {{8, 32}, {6, 128}, {5, 128}, {5, 64}, {4, 128}, {3, 128}, {2, 160}}, 192);
  exl2("exl2 parts of the slots", {{4, 512}, {3, 128}, {6, 128}}, 96);
  exl2("exl2 2 bits, one strip", {{2, 32}}, 32);
  exl2("exl2 many strips", {{3, 64}, {2, 64}}, 8224);
  // Where one token takes chunks in pairs (CUDA): all widths and lengths, with and without a
  // neighbour; and so many strips that four are taken at a time.
  std::vector<GroupShape> shorts;
  for (const auto& [count, group] :
       std::initializer_list<std::pair<int, GroupShape>>{{2, {8, 32}},
                                                         {2, {6, 64}},
                                                         {5, {5, 32}},
                                                         {3, {4, 64}},
                                                         {4, {3, 32}},
                                                         {16, {2, 64}},
                                                         {1, {4, 96}},
                                                         {1, {3, 160}},
                                                         {1, {2, 32}}}) {
    shorts.insert(shorts.end(), static_cast<std::size_t>(count), group);
  }
  exl2("exl2 short groups", shorts, 272);
  std::vector<GroupShape> narrow(2, {4, 64});
  narrow.insert(narrow.end(), 4, {3, 64});
  narrow.insert(narrow.end(), 4, {2, 64});
  exl2("exl2 short groups, many strips", narrow, 8224);
  exl2("exl2 long", std::vector<GroupShape>(112, {4, 128}), 64);
  exl2("exl2 48 KiB of binary16 a row", std::vector<GroupShape>(192, {4, 128}), 32);
  for (const int bits : {2, 3, 4, 8}) {
    for (const bool act_order : {false, true}) {
      result.push_back({"gptq " + std::to_string(bits),
                        random_gptq({bits, 448, 136, 64, act_order, GptqZeros::kBytes}, random)});
    }
    result.push_back({"gptq one group " + std::to_string(bits),
                      random_gptq({bits, 224, 64, 224, false, GptqZeros::kConstant}, random)});
    result.push_back({"gptq wide zeros " + std::to_string(bits),
                      random_gptq({bits, 224, 64, 32, false, GptqZeros::kWords}, random)});
  }
  return result;
}

class QuantizedProduct : public testing::TestWithParam<std::string> {
 protected:
  // Of the largest magnitude of a row's terms, summed.
  double tolerance() const {
    if (GetParam() == "ref") return 1e-5;
    // Activations of 14 bits a row (cpu) or 11 (cuda), beside an outlier that sets their scale.
    return 2e-3;
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, QuantizedProduct, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

TEST_P(QuantizedProduct, PackingLosesNothing) {
  Device device(GetParam());
  for (const NamedMatrix& c : named_matrices()) {
    const auto packed = device.backend().pack(c.matrix, {});
    const Tensor back = device.backend().unpack(*packed);
    const std::vector<std::uint16_t> expected = dequantize_to_half(c.matrix);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(back.view().as<float>()[i], half_to_float(expected[i])) << c.name << " at " << i;
    }
  }
}

TEST_P(QuantizedProduct, EqualsSumsInDouble) {
  Device device(GetParam());
  Random random(32);
  for (const NamedMatrix& c : named_matrices()) {
    const std::int64_t in = in_features(c.matrix);
    const std::int64_t out = out_features(c.matrix);
    std::vector<double> weights;
    for (const std::uint16_t half : dequantize_to_half(c.matrix)) {
      weights.push_back(static_cast<double>(half_to_float(half)));
    }
    const auto packed = device.backend().pack(c.matrix, {});
    for (const std::int64_t tokens : {1, 2, 3, 8, 9, 16, 24, 33, 48, 70, 300}) {
      if (out > 1000 && tokens > 3 && tokens != 70) continue;
      if (in * out > 100'000 && tokens > 100) continue;
      std::vector<float> x = random.normal(tokens * in);
      x[0] = 300.0f;  // one outlier
      std::vector<double> expected(static_cast<std::size_t>(tokens * out), 0.0);
      double scale = 0.0;
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t i = 0; i < in; ++i) {
          const double a = static_cast<double>(x[static_cast<std::size_t>(t * in + i)]);
          const double* row = weights.data() + i * out;
          double* y = expected.data() + t * out;
          for (std::int64_t o = 0; o < out; ++o) y[o] += a * row[o];
        }
      }
      for (const double y : expected) scale = std::max(scale, std::fabs(y));
      const TensorView x_view = device.put(x, {tokens, in});
      device.for_each_way([&](const std::string& way) {
        const TensorView result = device.put(
            std::vector<float>(static_cast<std::size_t>(tokens * out), NAN), {tokens, out});
        const MatmulOutput output{packed.get(), result, {}};
        device.ops().matmul(device.context(), {.x = x_view, .outputs = {&output, 1}});
        const std::vector<float> got = device.get(result);
        double worst = 0.0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double difference = std::fabs(static_cast<double>(got[i]) - expected[i]);
          worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
        }
        EXPECT_LE(worst, tolerance() * scale) << c.name << ", " << tokens << " tokens, " << way;
      });
    }
  }
}

// The identity gives back the weights, after the rounding that the formats ask for.
TEST_P(QuantizedProduct, IdentityGivesTheWeights) {
  if (!GetParam().starts_with("cuda") && GetParam() != "ref") {
    GTEST_SKIP() << "activations of 14 bits";
  }
  Device device(GetParam());
  for (const NamedMatrix& c : named_matrices()) {
    const std::int64_t in = in_features(c.matrix);
    const std::int64_t out = out_features(c.matrix);
    if (out > 1000 || in > 2000) continue;
    const std::vector<std::uint16_t> halves = dequantize_to_half(c.matrix);
    const auto packed = device.backend().pack(c.matrix, {});
    for (const std::int64_t tokens : {1, 8, 16, 32, 128}) {
      const std::int64_t step = tokens == 1 ? 29 : tokens;
      for (std::int64_t first = 0; first + tokens <= in; first += step) {
        std::vector<float> x(static_cast<std::size_t>(tokens * in), 0.0f);
        for (std::int64_t t = 0; t < tokens; ++t)
          x[static_cast<std::size_t>(t * in + first + t)] = 1;
        const TensorView result =
            device.put(std::vector<float>(static_cast<std::size_t>(tokens * out)), {tokens, out});
        const MatmulOutput output{packed.get(), result, {}};
        device.ops().matmul(device.context(),
                            {.x = device.put(x, {tokens, in}), .outputs = {&output, 1}});
        const std::vector<float> got = device.get(result);
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(half_to_float(float_to_half(got[i])),
                    half_to_float(halves[static_cast<std::size_t>(first * out) + i]))
              << c.name << ", " << tokens << " tokens, entry " << i;
        }
      }
    }
  }
}

// Several matrices of one input in a launch: shared and different gathers, biases, accumulation.
// Activations may be tiny or huge, and what is not a number must not get lost.
TEST_P(QuantizedProduct, OneTokenOfAnyRange) {
  Device device(GetParam());
  Random random(33);
  for (const NamedMatrix& c : named_matrices()) {
    const std::int64_t in = in_features(c.matrix);
    const std::int64_t out = out_features(c.matrix);
    if (out > 1000) continue;
    const auto packed = device.backend().pack(c.matrix, {});
    const auto product = [&](const std::vector<float>& x) {
      const TensorView result =
          device.put(std::vector<float>(static_cast<std::size_t>(out)), {1, out});
      const MatmulOutput output{packed.get(), result, {}};
      device.ops().matmul(device.context(), {.x = device.put(x, {1, in}), .outputs = {&output, 1}});
      return device.get(result);
    };
    const std::vector<float> plain = random.normal(in);
    const std::vector<float> expected = product(plain);
    float most = 0.0f;
    for (const float y : expected) most = std::max(most, std::fabs(y));
    for (const float scale : {0x1p-70f, 0x1p-20f, 0x1p20f, 0x1p70f}) {
      std::vector<float> x = plain;
      for (float& value : x) value *= scale;
      const std::vector<float> got = product(x);
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i] / scale, expected[i], 1e-4 * static_cast<double>(most))
            << c.name << " times " << scale << " at " << i;
      }
    }
    for (const float value : product(std::vector<float>(static_cast<std::size_t>(in), 0.0f))) {
      ASSERT_EQ(value, 0.0f) << c.name;
    }
    std::vector<float> damaged = plain;
    damaged[static_cast<std::size_t>(in / 2)] = NAN;
    int numbers = 0;
    for (const float value : product(damaged)) numbers += std::isnan(value) ? 0 : 1;
    EXPECT_EQ(numbers, 0) << c.name;
  }
}

// Products of several matrices in one call, added to what is there, are those of each by itself.
void expect_together_as_alone(Device& device, const std::vector<WeightMatrix>& matrices,
                              std::int64_t tokens) {
  Random random(33);
  const std::int64_t in = in_features(matrices.front());
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  std::vector<MatmulOutput> outputs;
  std::vector<TensorView> together;
  const std::vector<float> x = random.normal(tokens * in);
  const TensorView x_view = device.put(x, {tokens, in});
  const std::vector<float> bias = random.normal(256);
  for (const WeightMatrix& m : matrices) {
    const std::int64_t out = out_features(m);
    packed.push_back(device.backend().pack(m, {}));
    together.push_back(device.put(std::vector<float>(static_cast<std::size_t>(tokens * out), 1.0f),
                                  {tokens, out}));
    outputs.push_back({packed.back().get(), together.back(),
                       device.put({bias.begin(), bias.begin() + out}, {out})});
  }
  device.ops().matmul(
      device.context(),
      {.x = x_view, .outputs = outputs, .epilogue = {.multiplier = 0.5f, .accumulate = true}});
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    const std::int64_t out = out_features(matrices[m]);
    const TensorView alone =
        device.put(std::vector<float>(static_cast<std::size_t>(tokens * out)), {tokens, out});
    const MatmulOutput output{packed[m].get(), alone, {}};
    device.ops().matmul(device.context(), {.x = x_view, .outputs = {&output, 1}});
    const std::vector<float> single = device.get(alone);
    std::vector<float> expected;
    float largest = 1.0f;
    for (std::size_t i = 0; i < single.size(); ++i) {
      expected.push_back(1.0f + 0.5f * single[i] + bias[i % static_cast<std::size_t>(out)]);
      largest = std::max(largest, std::fabs(expected.back()));
    }
    const std::vector<float> got = device.get(together[m]);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 1e-5f * largest) << tokens << " tokens, matrix " << m;
    }
  }
}

TEST_P(QuantizedProduct, SeveralMatricesAtOnce) {
  Device device(GetParam());
  Engine engine(34);
  const std::int64_t in = 512;
  const std::vector<WeightMatrix> matrices{
      random_exl2({{5, 128}, {4, 384}}, 256, engine), random_exl2({{4, 256}, {3, 256}}, 96, engine),
      random_gptq({4, in, 64, 128, false, GptqZeros::kBytes}, engine)};
  for (const std::int64_t tokens : {1, 5, 12, 20, 40, 90, 150}) {
    device.for_each_way([&](const std::string& way) {
      SCOPED_TRACE(way);
      expect_together_as_alone(device, matrices, tokens);
    });
  }
}

}  // namespace
}  // namespace bl::test
