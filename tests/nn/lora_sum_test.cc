// A linear of every format with adapters, on every backend, against the explicit sum of its
// dequantized weight and the deltas, in double.

#include <gtest/gtest.h>

#include <cmath>

#include "backend/device.h"
#include "nn/device_copy.h"
#include "nn/lora.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

constexpr std::int64_t kIn = 256;
constexpr std::int64_t kOut = 192;

struct Format {
  std::string name;
  WeightMatrix matrix;
};

std::vector<Format> formats() {
  Engine random(5);
  std::vector<Format> all;
  all.push_back({"exl2", random_exl2({{6, 32}, {4, 96}, {3, 128}}, kOut, random)});
  all.push_back({"gptq", random_gptq({4, kIn, kOut, 64, true, GptqZeros::kBytes}, random)});
  all.push_back({"fp16", random_dense({DType::kF16, kIn, kOut}, random)});
  all.push_back({"bf16", random_dense({DType::kBF16, kIn, kOut, true}, random)});
  all.push_back({"fp32", random_dense({DType::kF32, kIn, kOut}, random)});
  return all;
}

// One delta with what it holds, in double.
struct Delta {
  std::int64_t first_column = 0;
  float scale = 0;
  DenseMatrix down, up;
  std::vector<double> product;  // A · B [in, columns]
};

double value_of(const DenseMatrix& matrix, std::int64_t row, std::int64_t column) {
  double value = 0;
  visit_float_dtype(matrix.weight.view.dtype, [&]<class T>(Tag<T>) {
    value = static_cast<double>(static_cast<float>(matrix.weight.view.row<const T>(row)[column]));
  });
  return value;
}

Delta random_delta(std::int64_t rank, std::int64_t first_column, std::int64_t columns, DType dtype,
                   Engine& random) {
  Delta delta{first_column, 0.25f + static_cast<float>(rank % 5),
              random_dense({dtype, kIn, rank}, random),
              random_dense({dtype, rank, columns}, random),
              std::vector<double>(static_cast<std::size_t>(kIn * columns))};
  for (std::int64_t i = 0; i < kIn; ++i) {
    for (std::int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::int64_t r = 0; r < rank; ++r) {
        sum += value_of(delta.down, r, i) * value_of(delta.up, c, r);
      }
      delta.product[static_cast<std::size_t>(i * columns + c)] = sum;
    }
  }
  return delta;
}

std::shared_ptr<const LoraAdapter> pack(Backend& backend, const std::vector<Delta>& deltas) {
  auto adapter = std::make_shared<LoraAdapter>();
  for (const Delta& delta : deltas) {
    adapter->add(3, {backend.pack(delta.down, {}), backend.pack(delta.up, {}), delta.first_column,
                     delta.scale});
  }
  return adapter;
}

struct Mixed {
  const std::vector<Delta>* deltas;
  float weight;
};

// x_row · (W + Σ weight · scale · A · B), and the sum of the terms' magnitudes.
std::pair<double, double> explicit_sum(const float* x, const Tensor& weight,
                                       const std::vector<Mixed>& mix, std::int64_t column) {
  double sum = 0;
  double magnitude = 0;
  for (std::int64_t i = 0; i < kIn; ++i) {
    double w = static_cast<double>(weight.view().row<const float>(i)[column]);
    for (const Mixed& one : mix) {
      for (const Delta& delta : *one.deltas) {
        const std::int64_t columns = delta.up.out();
        const std::int64_t at = column - delta.first_column;
        if (at < 0 || at >= columns) continue;
        w += static_cast<double>(one.weight) * static_cast<double>(delta.scale) *
             delta.product[static_cast<std::size_t>(i * columns + at)];
      }
    }
    sum += static_cast<double>(x[i]) * w;
    magnitude += std::fabs(static_cast<double>(x[i]) * w);
  }
  return {sum, magnitude};
}

class LoraSum : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, LoraSum, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

// Rows 0 … a with the first mix, then three without, then the second mix; into a residual stream
// with a multiplier.
TEST_P(LoraSum, EqualsWeightPlusDeltas) {
  Device device(GetParam());
  Backend& backend = device.backend();
  Engine random(6);
  Random inputs(7);
  const double tolerance = GetParam() == "ref" ? 1e-5 : 2e-3;
  // Ranks that are no multiple of anything, parts of the columns, two adapters on the same ones.
  const std::vector<Delta> first{random_delta(3, 0, kOut, DType::kF32, random),
                                 random_delta(8, 64, 32, DType::kF16, random)};
  const std::vector<Delta> second{random_delta(200, 0, 96, DType::kBF16, random),
                                  random_delta(1, 96, 96, DType::kF32, random),
                                  random_delta(16, 17, 80, DType::kF16, random)};
  const AdapterMix one{{pack(backend, first), 0.7f}};
  const AdapterMix two{{pack(backend, second), -0.4f}, {pack(backend, first), 1.5f}};
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    const Linear linear(backend.pack(format.matrix, {}), Tensor(), 3);
    const Tensor weight = backend.unpack(linear.weight());
    for (const std::int64_t rows : {1, 6, 75}) {
      const std::vector<float> x = inputs.normal((2 * rows + 3) * kIn);
      const std::vector<float> before = inputs.normal((2 * rows + 3) * kOut);
      const TensorView out = device.put_strided(before, {2 * rows + 3, kOut}, 5);
      StepAdapters step;
      step.append(&one, rows);
      step.append(nullptr, 3);
      step.append(&two, rows);
      ExecContext& ctx = device.context();
      ctx.adapters = &step;
      const TensorView input = device.put(x, {2 * rows + 3, kIn});
      apply_last_linear(ctx, input, linear, {.to = out, .add = true, .multiplier = 0.5f});
      ctx.adapters = nullptr;
      const std::vector<float> result = device.get(out);
      double worst = 0;
      for (std::int64_t row = 0; row < 2 * rows + 3; ++row) {
        std::vector<Mixed> mix;
        if (row < rows) mix = {{&first, 0.7f}};
        if (row >= rows + 3) mix = {{&second, -0.4f}, {&first, 1.5f}};
        for (std::int64_t c = 0; c < kOut; ++c) {
          const auto at = static_cast<std::size_t>(row * kOut + c);
          const auto [sum, magnitude] = explicit_sum(x.data() + row * kIn, weight, mix, c);
          const double expected = static_cast<double>(before[at]) + 0.5 * sum;
          const double error = std::fabs(static_cast<double>(result[at]) - expected);
          worst = std::max(worst, error / (1 + magnitude));
        }
      }
      EXPECT_LE(worst, tolerance) << rows << " rows";
    }
  }
}

// Equal mixes are one run; nothing is a run of nothing.
TEST(StepAdaptersTest, JoinsEqualNeighbours) {
  const auto adapter = std::make_shared<LoraAdapter>();
  const AdapterMix a{{adapter, 1.0f}};
  const AdapterMix same = a;
  const AdapterMix other{{adapter, 2.0f}};
  const AdapterMix none;
  StepAdapters step;
  step.append(&a, 2);
  step.append(&same, 3);
  step.append(&none, 1);
  step.append(&a, 1);
  step.append(&other, 1);
  step.append(nullptr, 4);
  ASSERT_EQ(step.runs.size(), 3u);
  EXPECT_EQ(step.rows, 12);
  EXPECT_EQ(step.runs[0].rows, 5);
  EXPECT_EQ(step.runs[1].first, 6);
  EXPECT_EQ(step.runs[2].first, 7);
}

}  // namespace
}  // namespace bl::test
