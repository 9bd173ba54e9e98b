// With ExecContext::deterministic a row has the same bits beside any other rows, on every backend.

#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "backend/device.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

constexpr std::int64_t kIn = 448;
constexpr std::int64_t kOut = 200;
constexpr std::int64_t kTokens = 150;

class DeterministicProduct : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { device_.context().deterministic = true; }

  // Two matrices for the same input.
  using Pair = std::array<std::unique_ptr<PackedMatrix>, 2>;
  Pair pack(const WeightMatrix& first, const WeightMatrix& second) {
    return {device_.backend().pack(first, {}), device_.backend().pack(second, {})};
  }
  WeightMatrix exl2(std::int64_t out) {
    return random_exl2({{8, 32}, {5, 32}, {4, 256}, {3, 128}}, out, engine_);
  }
  WeightMatrix gptq(std::int64_t out) {
    return random_gptq({4, kIn, out, 64, true, GptqZeros::kBytes}, engine_);
  }
  WeightMatrix dense(DType dtype, std::int64_t out) {
    return random_dense({dtype, kIn, out, false, false}, engine_);
  }

  TensorView zeros(std::int64_t rows, std::int64_t columns) {
    return device_.put(std::vector<float>(static_cast<std::size_t>(rows * columns)),
                       {rows, columns});
  }
  // Rows [first, first + count) times both, and act(first) · second of these.
  std::vector<std::vector<float>> multiply(const Pair& pair, std::int64_t first,
                                           std::int64_t count) {
    const TensorView x = slice_rows(x_, first, count);
    const TensorView left = zeros(count, pair[0]->out());
    const TensorView right = zeros(count, pair[1]->out());
    const std::array<MatmulOutput, 2> outputs{
        {{pair[0].get(), left, {}}, {pair[1].get(), right, {}}}};
    device_.ops().matmul(device_.context(),
                         {.x = x, .outputs = outputs, .epilogue = {.multiplier = 0.5f}});
    const TensorView gate = zeros(count, pair[0]->out());
    const TensorView up = zeros(count, pair[1]->out());
    const std::array<MatmulOutput, 2> gated{{{pair[0].get(), gate, {}}, {pair[1].get(), up, {}}}};
    const ActivateArgs activation{.gate = gate, .up = up, .out = gate};
    const bool fused = device_.ops().gemm_fusion != nullptr;
    device_.ops().matmul(
        device_.context(),
        {.x = x, .outputs = gated, .epilogue = {.activation = fused ? &activation : nullptr}});
    if (!fused) device_.ops().activate(device_.context(), activation);
    return {device_.get(left), device_.get(right), device_.get(gate)};
  }
  // The same bits in pieces of any length.
  void expect_equal(const Pair& pair, const std::string& name) {
    const auto whole = multiply(pair, 0, kTokens);
    std::array<std::vector<float>, 3> joined;
    for (const auto& [begin, end] :
         {std::pair{0, 1}, std::pair{1, 3}, std::pair{3, 11}, std::pair{11, 20}, std::pair{20, 37},
          std::pair{37, 86}, std::pair{86, 150}}) {
      const auto part = multiply(pair, begin, end - begin);
      for (std::size_t i = 0; i < joined.size(); ++i) {
        joined[i].insert(joined[i].end(), part[i].begin(), part[i].end());
      }
    }
    for (std::size_t i = 0; i < joined.size(); ++i) EXPECT_EQ(joined[i], whole[i]) << name;
  }

  Device device_{GetParam()};
  Random random_{41};
  Engine engine_{42};
  TensorView x_ = device_.put(random_.normal(kTokens * kIn), {kTokens, kIn});
};

INSTANTIATE_TEST_SUITE_P(Backends, DeterministicProduct, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

TEST_P(DeterministicProduct, RowsStandAlone) {
  expect_equal(pack(exl2(kOut), exl2(kOut)), "exl2");
  expect_equal(pack(exl2(2048), exl2(2048)), "exl2, several strips a multiprocessor");
  expect_equal(pack(gptq(kOut), gptq(kOut)), "gptq");
  expect_equal(pack(exl2(kOut), gptq(kOut)), "both");
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
    expect_equal(pack(dense(type, kOut), dense(type, kOut)), std::string(name_of(type)));
  }
  expect_equal(pack(dense(DType::kF16, kOut), exl2(kOut)), "plain and exl2");
}

}  // namespace
}  // namespace bl::test
