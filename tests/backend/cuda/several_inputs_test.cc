// Matrices of one launch whose slots hold other channels, or the same in other chunks, as those of
// most files do: the results are those of each matrix alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cuda/on_cuda_device.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

using Groups = std::vector<GroupShape>;

// Groups of so many channels, of these widths in turn, 4,096 channels in all.
Groups groups_of(std::int32_t channels, const std::vector<int>& bits) {
  Groups groups;
  const auto count = static_cast<std::size_t>(4096 / channels);
  for (std::size_t i = 0; i < count; ++i) {
    groups.push_back({bits[i * bits.size() / count], channels});
  }
  return groups;
}

class CudaSeveralInputs : public OnCudaDevice {
 protected:
  std::unique_ptr<PackedMatrix> exl2(const Groups& groups, std::int64_t out, bool same_order) {
    Exl2Matrix matrix = random_exl2(groups, out, engine_);
    if (!same_order) return device_->backend().pack(matrix, {});
    if (order_.empty()) order_ = matrix.perm;
    matrix.perm = order_;
    return device_->backend().pack(matrix, {});
  }

  std::vector<float> multiply(const TensorView& x, std::span<const MatmulOutput> outputs,
                              const ActivateArgs* activation) {
    NormArgs norm{
        .x = {}, .out = {}, .weight = weight_, .bias = {}, .kind = NormKind::kRms, .eps = 1e-5f};
    device_->ops().matmul(
        device_->context(),
        {.x = x, .outputs = outputs, .multiplier = 0.5f, .norm = &norm, .activation = activation});
    std::vector<float> all;
    if (activation != nullptr) return device_->get(activation->out);
    for (const MatmulOutput& output : outputs) {
      const std::vector<float> values = device_->get(output.out);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  // `gated`: of the first two.
  void expect_each_alone(const std::vector<std::unique_ptr<PackedMatrix>>& matrices, bool gated) {
    weight_ = device_->put(random_.normal(4096), {4096});
    for (const std::int64_t tokens : {1, 2, 3, 8, 9, 16, 21}) {
      const TensorView x = device_->put(random_.normal(tokens * 4096), {tokens, 4096});
      std::vector<MatmulOutput> outputs;
      std::vector<float> alone;
      for (const auto& matrix : matrices) {
        const auto width = static_cast<std::size_t>(tokens * matrix->out());
        outputs.push_back(
            {matrix.get(), device_->put(std::vector<float>(width), {tokens, matrix->out()}), {}});
        const std::vector<float> own = multiply(x, {&outputs.back(), 1}, nullptr);
        alone.insert(alone.end(), own.begin(), own.end());
      }
      ActivateArgs silu{.gate = outputs[0].out, .up = outputs[1].out, .out = outputs[1].out};
      if (gated) alone = activated(alone);
      const std::vector<float> together = multiply(x, outputs, gated ? &silu : nullptr);
      ASSERT_EQ(together.size(), alone.size());
      float largest = 0.0f;
      float furthest = 0.0f;
      for (std::size_t i = 0; i < alone.size(); ++i) {
        largest = std::max(largest, std::abs(alone[i]));
        furthest = std::max(furthest, std::abs(alone[i] - together[i]));
      }
      // Activations in whole numbers, or in halves.
      EXPECT_LE(furthest, 5e-4f * largest) << tokens << " tokens";
    }
  }

  Random random_{81};
  Engine engine_{82};

 private:
  // SiLU of the first half, times the second.
  static std::vector<float> activated(const std::vector<float>& both) {
    std::vector<float> result;
    const std::size_t half = both.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
      result.push_back(both[i] / (1.0f + std::exp(-both[i])) * both[half + i]);
    }
    return result;
  }

  std::vector<std::int32_t> order_;
  TensorView weight_;
};

// Long groups, and short ones, whose chunks are taken in pairs.
TEST_F(CudaSeveralInputs, OfQueriesKeysAndValues) {
  for (const std::int32_t channels : {32, 64, 128}) {
    for (const bool same_order : {false, true}) {
      SCOPED_TRACE(std::to_string(channels) + (same_order ? ", one order" : ""));
      std::vector<std::unique_ptr<PackedMatrix>> matrices;
      matrices.push_back(exl2(groups_of(channels, {5, 4, 4, 3}), 4096, same_order));
      matrices.push_back(exl2(groups_of(channels, {4, 3}), 1024, same_order));
      matrices.push_back(exl2(groups_of(32, {5, 5, 4}), 1024, same_order));
      expect_each_alone(matrices, false);
    }
  }
  // Few columns: shares of all three.
  std::vector<std::unique_ptr<PackedMatrix>> few;
  for (const int bits : {2, 3, 4}) few.push_back(exl2(groups_of(64, {bits}), 96, false));
  expect_each_alone(few, false);
}

TEST_F(CudaSeveralInputs, OfGateAndUp) {
  for (const std::int32_t channels : {32, 64, 128}) {
    for (const bool same_order : {false, true}) {
      SCOPED_TRACE(std::to_string(channels) + (same_order ? ", one order" : ""));
      std::vector<std::unique_ptr<PackedMatrix>> matrices;
      matrices.push_back(exl2(groups_of(channels, {6, 4}), 6144, same_order));
      matrices.push_back(exl2(groups_of(channels, {6, 6, 5}), 6144, same_order));
      expect_each_alone(matrices, true);
    }
  }
}

// The same input of matrices alike but for the zero point, which products of 3 to 16 tokens
// multiply sums of activations by.
TEST_F(CudaSeveralInputs, OfOtherZeroPoints) {
  std::vector<std::unique_ptr<PackedMatrix>> matrices;
  for (const int zero : {8, 3, 11}) {
    GptqMatrix matrix = random_gptq({4, 4096, 1024, 128, false, GptqZeros::kConstant}, engine_);
    std::fill(matrix.zeros.begin(), matrix.zeros.end(), static_cast<std::uint16_t>(zero));
    matrices.push_back(device_->backend().pack(matrix, {}));
  }
  expect_each_alone(matrices, false);
}

}  // namespace
}  // namespace bl::test
