// Large GEMMs with more tiles than multiprocessors: the wgmma path gives the results of
// dequantization into memory, and the same bits every time.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cuda/on_cuda_device.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

class CudaWgmma : public OnCudaDevice {
 protected:
  void SetUp() override {
    OnCudaDevice::SetUp();
    if (!IsSkipped() && !has_wgmma()) GTEST_SKIP() << "this card has no wgmma path";
  }

  // Returns 2 · x · matrices, added to ones if `accumulate`, with adjacent outputs. x: [tokens,
  // in].
  std::vector<float> gemm(const std::vector<std::unique_ptr<PackedMatrix>>& matrices,
                          const TensorView& x, bool accumulate) {
    std::int64_t width = 0;
    for (const auto& m : matrices) width += m->out();
    const TensorView out = device_->put(
        std::vector<float>(static_cast<std::size_t>(x.rows() * width), 1.0f), {x.rows(), width});
    std::vector<MatmulOutput> outputs;
    std::int64_t column = 0;
    for (const auto& m : matrices) {
      outputs.push_back({m.get(), slice_columns(out, column, m->out()), {}});
      column += m->out();
    }
    device_->ops().matmul(
        device_->context(),
        {.x = x, .outputs = outputs, .epilogue = {.multiplier = 2.0f, .accumulate = accumulate}});
    return device_->get(out);
  }

  void expect_as_expanded(const std::vector<WeightMatrix>& matrices, std::int64_t tokens) {
    std::vector<std::unique_ptr<PackedMatrix>> packed;
    for (const WeightMatrix& m : matrices) packed.push_back(device_->backend().pack(m, {}));
    const std::int64_t in = packed.front()->in();
    // Small GEMMs are never dequantized into memory, so the expected results have more rows.
    const std::int64_t rows = std::max<std::int64_t>(tokens, 130);
    const TensorView all = device_->put(random_.normal(rows * in), {rows, in});
    const TensorView x = slice_rows(all, 0, tokens);
    for (const bool accumulate : {false, true}) {
      disable_wgmma();
      const std::vector<float> expected = gemm(packed, all, accumulate);
      float largest = 0.0f;
      for (const float y : expected) largest = std::max(largest, std::fabs(y));
      prefer_wgmma();
      const std::vector<float> got = gemm(packed, x, accumulate);
      ASSERT_LE(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], 2e-5f * largest) << tokens << " tokens, result " << i;
      }
      for (int again = 0; again < 3; ++again) ASSERT_EQ(gemm(packed, x, accumulate), got);
    }
  }

  Random random_{41};
  Engine engine_{42};
};

// 108 tiles of 256 rows × 256 columns for 66 clusters.
TEST_F(CudaWgmma, ManyRowsOfCodesOfAllWidths) {
  const std::vector<GroupShape> groups{{8, 32}, {6, 160}, {5, 96}, {4, 480}, {3, 192}, {2, 64}};
  expect_as_expanded({random_exl2(groups, 2320, engine_), random_exl2(groups, 2064, engine_)},
                     1300);
}

TEST_F(CudaWgmma, ManyRowsOfGptq) {
  const auto zeros = GptqZeros::kBytes;
  expect_as_expanded({random_gptq({4, 512, 2320, 64, false, zeros}, engine_),
                      random_gptq({4, 512, 2064, 64, false, zeros}, engine_)},
                     1300);
}

// Tiles of 64 and of 32 rows: 134 of 256 columns each.
TEST_F(CudaWgmma, FewRowsOfManyColumns) {
  const WeightMatrix wide = random_exl2({{5, 96}, {4, 160}}, 34'064, engine_);
  for (const std::int64_t tokens : {30, 60}) expect_as_expanded({wide}, tokens);
}

}  // namespace
}  // namespace bl::test
