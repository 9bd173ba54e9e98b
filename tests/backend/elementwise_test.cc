// Ops that touch each element once, on every backend, against formulas in double.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "backend/device.h"
#include "tensor/float16.h"

namespace bl::test {
namespace {

constexpr double kTolerance = 3e-6;

class ElementwiseOp : public testing::TestWithParam<std::string> {
 protected:
  Device device_{GetParam()};
  Random random_{11};
  ExecContext& ctx() { return device_.context(); }
};

INSTANTIATE_TEST_SUITE_P(Backends, ElementwiseOp, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

std::vector<double> map(const std::vector<float>& x, const std::function<double(double)>& f) {
  std::vector<double> y;
  for (const float value : x) y.push_back(f(static_cast<double>(value)));
  return y;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Ordinary values, and some so large that a careless exp overflows.
std::vector<float> spread(Random& random, std::int64_t count) {
  std::vector<float> x = random.normal(count, 3.0f);
  const std::vector<float> extremes{0.0f,   -0.0f, 1e-8f,  -1e-8f, 30.0f,
                                    -30.0f, 95.0f, -95.0f, 1e4f,   -1e4f};
  std::copy(extremes.begin(), extremes.end(), x.begin());
  return x;
}

TEST_P(ElementwiseOp, EmbedTakesRowsOfEachDtype) {
  const std::int64_t width = 37;
  const std::vector<float> table = random_.normal(5 * width);
  const std::vector<std::int32_t> ids{4, 0, 0, 2};
  std::vector<std::uint16_t> halves;
  std::vector<std::uint16_t> brains;
  for (const float value : table) {
    halves.push_back(Half(value).bits);
    brains.push_back(BFloat16(value).bits);
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    Tensor stored(device_.backend().allocate(table.size() * size_of(dtype)), dtype, {5, width});
    void* data = const_cast<float*>(table.data());
    if (dtype == DType::kF16) data = halves.data();
    if (dtype == DType::kBF16) data = brains.data();
    device_.backend().upload(stored.view(), view_of(data, dtype, {5, width}));
    const std::vector<float> before = random_.normal(4 * width);
    for (const bool accumulate : {false, true}) {
      const TensorView out = device_.put_strided(before, {4, width}, 3);
      device_.ops().embed(ctx(), {.ids = device_.put(ids),
                                  .tokens = 4,
                                  .table = stored.view(),
                                  .out = out,
                                  .multiplier = 1.5f,
                                  .accumulate = accumulate});
      std::vector<double> expected;
      for (std::size_t i = 0; i < before.size(); ++i) {
        const std::size_t at = static_cast<std::size_t>(ids[i / 37]) * 37 + i % 37;
        double value = static_cast<double>(table[at]);
        if (dtype == DType::kF16) value = static_cast<double>(half_to_float(halves[at]));
        if (dtype == DType::kBF16) {
          value = static_cast<double>(std::bit_cast<float>(std::uint32_t{brains[at]} << 16));
        }
        expected.push_back(1.5 * value + (accumulate ? static_cast<double>(before[i]) : 0.0));
      }
      EXPECT_LE(worst_difference(device_.get(out), expected), kTolerance);
    }
  }
}

TEST_P(ElementwiseOp, NormOfRowsAndHeads) {
  struct Case {
    std::int64_t tokens, segments, width;
    bool weight_a_segment;
  };
  const std::vector<Case> cases{{1, 1, 576, false}, {3, 1, 37, false},  {5, 9, 64, false},
                                {2, 3, 80, true},   {4, 1, 4096, true}, {2, 7, 1, false}};
  for (const Case& c : cases) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      for (int variant = 0; variant < 4; ++variant) {
        const bool has_weight = variant != 0;
        const bool has_bias = variant == 2;
        const bool unit_offset = variant == 3;
        const auto row = static_cast<std::size_t>(c.segments * c.width);
        std::vector<float> x = random_.normal(c.tokens * c.segments * c.width, 2.0f);
        for (float& value : x) value += 0.5f;
        const std::int64_t parameters = c.weight_a_segment ? c.segments * c.width : c.width;
        const std::vector<float> weight = random_.normal(parameters);
        const std::vector<float> bias = random_.normal(parameters);
        const Shape shape{c.tokens, c.segments, c.width};
        const Shape parameter_shape =
            c.weight_a_segment ? Shape{c.segments, c.width} : Shape{c.width};
        const TensorView view = device_.put_strided(x, shape, 5);
        const TensorView out =
            variant == 1 ? view : device_.put(std::vector<float>(x.size()), shape);
        device_.ops().norm(
            ctx(), {.x = view,
                    .out = out,
                    .weight = has_weight ? device_.put(weight, parameter_shape) : TensorView{},
                    .bias = has_bias ? device_.put(bias, parameter_shape) : TensorView{},
                    .kind = kind,
                    .eps = 1e-5f,
                    .unit_offset = unit_offset});
        std::vector<double> expected(x.size());
        for (std::size_t begin = 0; begin < x.size(); begin += static_cast<std::size_t>(c.width)) {
          double mean = 0;
          double square = 0;
          const auto n = static_cast<double>(c.width);
          for (std::size_t i = 0; i < static_cast<std::size_t>(c.width); ++i) {
            mean += static_cast<double>(x[begin + i]) / n;
          }
          if (kind == NormKind::kRms) mean = 0;
          for (std::size_t i = 0; i < static_cast<std::size_t>(c.width); ++i) {
            square += std::pow(static_cast<double>(x[begin + i]) - mean, 2) / n;
          }
          for (std::size_t i = 0; i < static_cast<std::size_t>(c.width); ++i) {
            const std::size_t p = c.weight_a_segment ? (begin + i) % row : i;
            double y = (static_cast<double>(x[begin + i]) - mean) / std::sqrt(square + 1e-5);
            if (has_weight) y *= static_cast<double>(weight[p]) + (unit_offset ? 1.0 : 0.0);
            if (has_bias) y += static_cast<double>(bias[p]);
            expected[begin + i] = y;
          }
        }
        EXPECT_LE(worst_difference(device_.get(out), expected), kTolerance)
            << "width " << c.width << " variant " << variant;
      }
    }
  }
}

std::vector<std::pair<Activation, std::function<double(double)>>> activations() {
  const double pi = std::acos(-1.0);
  return {
      {Activation::kNone, [](double x) { return x; }},
      {Activation::kSilu, [](double x) { return x * sigmoid(x); }},
      {Activation::kGelu, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
      {Activation::kGeluTanh,
       [pi](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
       }},
      {Activation::kQuickGelu, [](double x) { return x * sigmoid(1.702 * x); }},
      {Activation::kGelu10,
       [](double x) { return std::clamp(0.5 * x * std::erfc(-x / std::sqrt(2.0)), -10.0, 10.0); }},
      {Activation::kRelu, [](double x) { return x > 0 ? x : 0; }},
      {Activation::kLeakyRelu, [](double x) { return x > 0 ? x : x / 100; }},
      {Activation::kMish,
       [](double x) {
         return x * std::tanh(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))));
       }},
      {Activation::kSigmoid, [](double x) { return sigmoid(x); }},
      {Activation::kTanh, [](double x) { return std::tanh(x); }},
      {Activation::kRelu2, [](double x) { return x > 0 ? x * x : 0; }},
      {Activation::kXielu, [](double x) {
         return x > 0 ? 0.8 * x * x + 0.5 * x
                      : 1.3 * (std::expm1(std::min(x, -1e-6)) - x) + 0.5 * x;
       }}};
}

TEST_P(ElementwiseOp, ActivateFollowsItsFormulas) {
  const Shape shape{3, 53};
  const std::vector<float> gate = spread(random_, shape.elements());
  const std::vector<float> up = random_.normal(shape.elements(), 4.0f);
  for (const auto& [kind, f] : activations()) {
    for (const bool gated : {false, true}) {
      for (const float limit : {0.0f, 2.5f}) {
        const TensorView view = device_.put_strided(gate, shape, 11);
        const TensorView out = device_.put(std::vector<float>(gate.size()), shape);
        device_.ops().activate(ctx(), {.gate = view,
                                       .up = gated ? device_.put(up, shape) : TensorView{},
                                       .out = out,
                                       .kind = kind,
                                       .limit = limit,
                                       .xielu_alpha_p = 0.8f,
                                       .xielu_alpha_n = 1.3f});
        std::vector<double> expected;
        for (std::size_t i = 0; i < gate.size(); ++i) {
          double g = static_cast<double>(gate[i]);
          double u = static_cast<double>(up[i]);
          if (limit > 0) {
            g = std::min(g, static_cast<double>(limit));
            u = std::clamp(u, -static_cast<double>(limit), static_cast<double>(limit));
          }
          expected.push_back(f(g) * (gated ? u : 1.0));
        }
        EXPECT_LE(worst_difference(device_.get(out), expected), kTolerance)
            << "kind " << static_cast<int>(kind) << " gated " << gated << " limit " << limit;
      }
    }
  }
}

TEST_P(ElementwiseOp, ActivateOaiSwiglu) {
  const Shape shape{2, 40};
  const std::vector<float> gate = spread(random_, 80);
  const std::vector<float> up = spread(random_, 80);
  const TensorView view = device_.put(gate, shape);
  device_.ops().activate(ctx(), {.gate = view,
                                 .up = device_.put(up, shape),
                                 .out = view,
                                 .kind = Activation::kSwigluOai,
                                 .limit = 7.0f});
  std::vector<double> expected;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double g = std::min(static_cast<double>(gate[i]), 7.0);
    expected.push_back(g * sigmoid(1.702 * g) *
                       (std::clamp(static_cast<double>(up[i]), -7.0, 7.0) + 1.0));
  }
  EXPECT_LE(worst_difference(device_.get(view), expected), kTolerance);
}

TEST_P(ElementwiseOp, AddScaleClamp) {
  const Shape shape{3, 77};
  const std::vector<float> a = spread(random_, shape.elements());
  const std::vector<float> b = random_.normal(shape.elements());
  const TensorView x = device_.put_strided(a, shape, 2);
  device_.ops().add(ctx(), {.x = x, .y = device_.put(b, shape), .multiplier = 0.25f});
  std::vector<double> sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum.push_back(static_cast<double>(a[i]) + 0.25 * static_cast<double>(b[i]));
  }
  EXPECT_LE(worst_difference(device_.get(x), sum), kTolerance);

  for (const float cap : {0.0f, 30.0f}) {
    const TensorView y = device_.put_strided(a, shape, 2);
    device_.ops().scale(ctx(), {.x = y, .multiplier = 0.5f, .softcap = cap});
    const double c = static_cast<double>(cap);
    EXPECT_LE(worst_difference(
                  device_.get(y),
                  map(a, [c](double v) { return c > 0 ? c * std::tanh(0.5 * v / c) : 0.5 * v; })),
              kTolerance);
  }
  const TensorView z = device_.put_strided(a, shape, 2);
  device_.ops().clamp(ctx(), {.x = z, .limit = 1.25f});
  EXPECT_LE(
      worst_difference(device_.get(z), map(a, [](double v) { return std::clamp(v, -1.25, 1.25); })),
      0.0);
}

TEST_P(ElementwiseOp, GateByElementHeadAndRow) {
  const std::int64_t tokens = 3;
  const std::int64_t width = 96;
  const std::vector<float> x = random_.normal(tokens * width);
  for (const std::int64_t gates : {std::int64_t{1}, std::int64_t{6}, width}) {
    std::vector<float> g = random_.normal(tokens * gates, 3.0f);
    g[0] = 60.0f;
    g[1] = -60.0f;
    for (const bool softplus : {false, true}) {
      const TensorView view = device_.put(x, {tokens, width});
      device_.ops().gate(
          ctx(),
          {.x = view, .gate = device_.put_strided(g, {tokens, gates}, 1), .softplus = softplus});
      std::vector<double> expected;
      for (std::int64_t i = 0; i < tokens * width; ++i) {
        const auto at = static_cast<std::size_t>(i / width * gates + i % width / (width / gates));
        const double v = static_cast<double>(g[at]);
        const double factor =
            softplus ? std::max(v, 0.0) + std::log1p(std::exp(-std::fabs(v))) : sigmoid(v);
        expected.push_back(static_cast<double>(x[static_cast<std::size_t>(i)]) * factor);
      }
      EXPECT_LE(worst_difference(device_.get(view), expected), kTolerance) << gates << softplus;
    }
  }
}

TEST_P(ElementwiseOp, CopyRowsGathers) {
  const std::vector<float> x = random_.normal(5 * 19);
  const std::vector<std::int32_t> rows{4, 1, 1};
  const TensorView out = device_.put(std::vector<float>(3 * 19), {3, 19});
  device_.ops().copy_rows(
      ctx(),
      {.x = device_.put_strided(x, {5, 19}, 4), .rows = device_.put(rows), .count = 3, .out = out});
  std::vector<float> expected;
  for (const std::int32_t row : rows) {
    expected.insert(expected.end(), x.begin() + row * 19, x.begin() + row * 19 + 19);
  }
  EXPECT_EQ(device_.get(out), expected);
}

TEST_P(ElementwiseOp, AddRowsScatters) {
  const std::vector<float> x = random_.normal(5 * 19);
  const std::vector<float> y = random_.normal(3 * 19);
  const std::vector<std::int32_t> rows{4, 0, 1};
  const std::vector<float> weights{0.5f, 0.0f, -3.0f};
  const TensorView sum = device_.put_strided(x, {5, 19}, 4);
  device_.ops().add_rows(ctx(), {.x = sum,
                                 .rows = device_.put(rows),
                                 .weights = device_.put(weights, {3}).as<const float>(),
                                 .y = device_.put_strided(y, {3, 19}, 1)});
  std::vector<double> expected(x.begin(), x.end());
  for (std::size_t i = 0; i < y.size(); ++i) {
    expected[static_cast<std::size_t>(rows[i / 19]) * 19 + i % 19] +=
        static_cast<double>(weights[i / 19]) * static_cast<double>(y[i]);
  }
  EXPECT_LE(worst_difference(device_.get(sum), expected), kTolerance);
}

}  // namespace
}  // namespace bl::test
