// Every op that touches each element once, against ref on shapes that kernels may dislike: odd
// widths, widths at the borders of how work is shared, strided rows, one row and many.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backend/device.h"
#include "tensor/float16.h"

namespace bl::test {
namespace {

constexpr double kShapesTolerance = 4e-6;
constexpr std::int64_t kWidths[] = {1, 2, 3, 37, 64, 127, 128, 576, 1028, 4096, 14336};
constexpr std::int64_t kRows[] = {1, 3, 300};
constexpr int kPaddings[] = {0, 4, 5};  // elements between rows: none, whole vectors, not so

class Shapes : public testing::TestWithParam<std::string> {
 protected:
  Device device_{GetParam()};
  Device ref_{"ref"};
  Random random_{17};

  // run(device, x) works on x in place on both; the results are compared.
  template <class Run>
  double difference(const std::vector<float>& x, const Shape& shape, int padding, const Run& run) {
    const TensorView ours = device_.put_strided(x, shape, padding);
    const TensorView theirs = ref_.put_strided(x, shape, padding);
    run(device_, ours);
    run(ref_, theirs);
    return worst_difference(device_.get(ours), ref_.get(theirs));
  }

  // f(rows, width, padding) for shapes of bounded size.
  template <class F>
  void each_shape(const F& f) {
    for (const std::int64_t width : kWidths) {
      for (const std::int64_t rows : kRows) {
        if (rows * width > 300 * 1028) continue;
        for (const int padding : kPaddings) {
          SCOPED_TRACE(fmt::format("[{}, {}] padding {}", rows, width, padding));
          f(rows, width, padding);
        }
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, Shapes, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

TEST_P(Shapes, Embed) {
  each_shape([&](std::int64_t rows, std::int64_t width, int padding) {
    const std::int64_t vocab = 7;
    const std::vector<float> table = random_.normal(vocab * width);
    std::vector<std::uint16_t> halves;
    std::vector<std::uint16_t> brains;
    for (const float value : table) {
      halves.push_back(Half(value).bits);
      brains.push_back(BFloat16(value).bits);
    }
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < rows; ++t) ids.push_back(random_.below(7));
    const std::vector<float> before = random_.normal(rows * width);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      void* data = const_cast<float*>(table.data());
      if (dtype == DType::kF16) data = halves.data();
      if (dtype == DType::kBF16) data = brains.data();
      for (const bool accumulate : {false, true}) {
        const double worst =
            difference(before, {rows, width}, padding, [&](Device& device, const TensorView& out) {
              Tensor stored(device.backend().allocate(table.size() * size_of(dtype)), dtype,
                            {vocab, width});
              device.backend().upload(stored.view(), view_of(data, dtype, {vocab, width}));
              device.ops().embed(device.context(), {.ids = device.put(ids),
                                                    .tokens = rows,
                                                    .table = stored.view(),
                                                    .out = out,
                                                    .multiplier = 1.7f,
                                                    .accumulate = accumulate});
              device.backend().synchronize();
            });
        EXPECT_LE(worst, kShapesTolerance);
      }
    }
  });
}

TEST_P(Shapes, Norm) {
  struct Case {
    std::int64_t tokens, segments, width;
  };
  std::vector<Case> cases;
  for (const std::int64_t width :
       {1,   3,   64,  80,   96,   112,  128,  129,  132,  192,   256,  508,
        512, 516, 576, 1024, 2049, 4096, 5120, 8192, 8196, 16384, 16388}) {
    cases.push_back({1, 1, width});
    cases.push_back({3, 5, width});
    if (width <= 576) cases.push_back({300, 1, width});
    if (width <= 128) cases.push_back({300, 9, width});
  }
  for (const Case& c : cases) {
    const Shape shape{c.tokens, c.segments, c.width};
    for (const int padding : kPaddings) {
      for (int variant = 0; variant < 4; ++variant) {
        SCOPED_TRACE(fmt::format("[{}, {}, {}] padding {} variant {}", c.tokens, c.segments,
                                 c.width, padding, variant));
        std::vector<float> x = random_.normal(shape.elements());
        // A mean that dwarfs the deviation: variances by E[x²] − E[x]² would be lost, their errors
        // are ten times the tolerance.
        const bool shifted = variant == 3 && c.width >= 64;
        for (float& value : x) value = shifted ? value + 400.0f : value;
        // Of a few values the deviation may happen to be next to nothing.
        const bool delicate = variant >= 2 && c.width < 64;
        const double tolerance = shifted ? 1e-3 : delicate ? 1e-4 : kShapesTolerance;
        const Shape each = variant == 2 ? Shape{c.segments, c.width} : Shape{c.width};
        const std::vector<float> weight = random_.normal(each.elements());
        const std::vector<float> bias = random_.normal(each.elements());
        const double worst =
            difference(x, shape, padding, [&](Device& device, const TensorView& view) {
              device.ops().norm(device.context(),
                                {.x = view,
                                 .out = view,
                                 .weight = variant != 0 ? device.put(weight, each) : TensorView{},
                                 .bias = variant >= 2 ? device.put(bias, each) : TensorView{},
                                 .kind = variant >= 2 ? NormKind::kLayer : NormKind::kRms,
                                 .eps = 1e-5f,
                                 .unit_offset = variant == 1});
            });
        EXPECT_LE(worst, tolerance);
      }
    }
  }
}

TEST_P(Shapes, Activate) {
  each_shape([&](std::int64_t rows, std::int64_t width, int padding) {
    const Shape shape{rows, width};
    const std::vector<float> gate = random_.normal(shape.elements(), 3.0f);
    const std::vector<float> up = random_.normal(shape.elements());
    for (const Activation kind : {Activation::kSilu, Activation::kGeluTanh}) {
      const double worst =
          difference(gate, shape, padding, [&](Device& device, const TensorView& view) {
            device.ops().activate(device.context(), {.gate = view,
                                                     .up = device.put(up, shape),
                                                     .out = view,
                                                     .kind = kind,
                                                     .limit = 2.0f,
                                                     .limit_after = true});
          });
      EXPECT_LE(worst, kShapesTolerance);
    }
  });
}

TEST_P(Shapes, AddScaleClamp) {
  each_shape([&](std::int64_t rows, std::int64_t width, int padding) {
    const Shape shape{rows, width};
    const std::vector<float> x = random_.normal(shape.elements(), 3.0f);
    const std::vector<float> y = random_.normal(shape.elements());
    const double worst = difference(x, shape, padding, [&](Device& device, const TensorView& view) {
      device.ops().add(device.context(),
                       {.x = view, .y = device.put_strided(y, shape, padding), .multiplier = 0.3f});
      device.ops().scale(device.context(), {.x = view, .multiplier = 1.5f, .softcap = 5.0f});
      device.ops().clamp(device.context(), {.x = view, .limit = 4.0f});
    });
    EXPECT_LE(worst, kShapesTolerance);
  });
}

TEST_P(Shapes, Gate) {
  each_shape([&](std::int64_t rows, std::int64_t width, int padding) {
    for (const std::int64_t share : {std::int64_t{1}, std::int64_t{2}, std::int64_t{64}, width}) {
      if (width % share != 0) continue;
      const std::int64_t gates = width / share;
      const std::vector<float> x = random_.normal(rows * width);
      const std::vector<float> gate = random_.normal(rows * gates, 4.0f);
      for (const bool softplus : {false, true}) {
        const double worst =
            difference(x, {rows, width}, padding, [&](Device& device, const TensorView& view) {
              device.ops().gate(device.context(),
                                {.x = view,
                                 .gate = device.put_strided(gate, {rows, gates}, padding),
                                 .softplus = softplus});
            });
        EXPECT_LE(worst, kShapesTolerance) << share;
      }
    }
  });
}

TEST_P(Shapes, CopyRows) {
  each_shape([&](std::int64_t rows, std::int64_t width, int padding) {
    const std::vector<float> x = random_.normal(9 * width);
    std::vector<std::int32_t> from;
    for (std::int64_t t = 0; t < rows; ++t) from.push_back(random_.below(9));
    const std::vector<float> before(static_cast<std::size_t>(rows * width));
    const double worst =
        difference(before, {rows, width}, padding, [&](Device& device, const TensorView& out) {
          device.ops().copy_rows(device.context(), {.x = device.put_strided(x, {9, width}, padding),
                                                    .rows = device.put(from),
                                                    .count = rows,
                                                    .out = out});
        });
    EXPECT_EQ(worst, 0.0);
  });
}

TEST_P(Shapes, AddRows) {
  each_shape([&](std::int64_t rows, std::int64_t width, int padding) {
    const std::vector<float> y = random_.normal(rows * width);
    const std::vector<float> weights = random_.normal(rows);
    const std::vector<float> before = random_.normal(rows * width);
    std::vector<std::int32_t> to;  // each once, backwards
    for (std::int64_t t = rows; t-- > 0;) to.push_back(static_cast<std::int32_t>(t));
    const double worst =
        difference(before, {rows, width}, padding, [&](Device& device, const TensorView& x) {
          device.ops().add_rows(device.context(),
                                {.x = x,
                                 .rows = device.put(to),
                                 .weights = device.put(weights, {rows}).as<const float>(),
                                 .y = device.put_strided(y, {rows, width}, padding)});
        });
    EXPECT_LE(worst, kShapesTolerance);
  });
}

TEST_P(Shapes, Rope) {
  for (const std::int64_t head_dim : {6, 64, 80, 96, 112, 128, 192, 256}) {
    for (const std::int64_t rotated : {head_dim, head_dim / 4 * 2}) {
      for (const std::int64_t tokens : {1, 300}) {
        for (const std::int64_t heads : {1, 9, 32}) {
          if (tokens * heads * head_dim > 300 * 9 * 128) continue;
          for (const RopeStyle style : {RopeStyle::kNeox, RopeStyle::kInterleaved}) {
            const std::int64_t half = rotated / 2;
            std::vector<float> inv_freq;
            for (std::int64_t i = 0; i < half; ++i) {
              inv_freq.push_back(static_cast<float>(
                  std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half))));
            }
            std::vector<std::int32_t> positions;
            for (std::int64_t t = 0; t < tokens; ++t) positions.push_back(random_.below(1 << 20));
            const std::vector<std::int32_t> variant(static_cast<std::size_t>(tokens), 0);
            const Shape shape{tokens, heads, head_dim};
            const double worst = difference(
                random_.normal(shape.elements()), shape, 5,
                [&](Device& device, const TensorView& view) {
                  device.ops().rope(device.context(), {.x = view,
                                                       .positions = device.put(positions),
                                                       .inv_freq = device.put(inv_freq, {1, half}),
                                                       .scale = device.put({1.25f}, {1}),
                                                       .variant = device.put(variant),
                                                       .rotated = rotated,
                                                       .style = style});
                });
            EXPECT_LE(worst, kShapesTolerance) << head_dim << " of which " << rotated << ", "
                                               << tokens << " tokens, " << heads << " heads";
          }
        }
      }
    }
  }
}

TEST_P(Shapes, Route) {
  struct Case {
    std::int64_t experts;
    int k, groups;
  };
  for (const Case& c : {Case{1, 1, 1}, Case{31, 31, 1}, Case{64, 33, 1}, Case{160, 6, 8},
                        Case{256, 8, 8}, Case{512, 10, 1}, Case{2048, 4, 64}}) {
    for (const std::int64_t tokens : {1, 5, 300}) {
      const std::vector<float> bias = random_.normal(c.experts, 0.2f);
      const std::vector<float> logits = random_.normal(tokens * c.experts);
      const auto slots = static_cast<std::size_t>(tokens * c.k);
      std::vector<std::int32_t> chosen[2];
      std::vector<float> weights[2];
      for (const bool ours : {false, true}) {
        Device& device = ours ? device_ : ref_;
        auto* experts = const_cast<std::int32_t*>(device.put(std::vector<std::int32_t>(slots)));
        const TensorView out = device.put_strided(std::vector<float>(slots), {tokens, c.k}, 3);
        device.ops().route(device.context(),
                           {.logits = device.put_strided(logits, {tokens, c.experts}, 5),
                            .selection_bias = device.put(bias, {c.experts}),
                            .kind = RouteKind::kSigmoid,
                            .multiplier = 2.5f,
                            .group_count = c.groups,
                            .group_top = (c.groups + 1) / 2,
                            .experts = experts,
                            .weights = out,
                            .k = c.k});
        chosen[ours] = device.get(experts, slots);
        weights[ours] = device.get(out);
      }
      EXPECT_EQ(chosen[1], chosen[0]) << c.experts << " experts, " << tokens << " tokens";
      EXPECT_LE(worst_difference(weights[1], weights[0]), kShapesTolerance);
    }
  }
}

}  // namespace
}  // namespace bl::test
