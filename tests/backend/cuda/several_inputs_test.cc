// Matrices of one launch with different permutations or k_tilings, as most files have them: the
// results are those of each matrix alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cuda/on_cuda_device.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

using Groups = std::vector<GroupShape>;

// Returns groups of `features` features each, `all` in total, with these widths in turn.
Groups groups_of(std::int32_t features, const std::vector<int>& bits, std::int32_t all = 4096) {
  Groups groups;
  const auto count = static_cast<std::size_t>(all / features);
  for (std::size_t i = 0; i < count; ++i) {
    groups.push_back({bits[i * bits.size() / count], features});
  }
  return groups;
}

// The largest deviation of results from expected ones, and the largest expected magnitude.
struct Distance {
  Distance(const std::vector<float>& results, const std::vector<float>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      furthest = std::max(furthest, std::abs(expected[i] - results[i]));
    }
  }
  float largest = 0.0f;
  float furthest = 0.0f;
};

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
    device_->ops().matmul(device_->context(),
                          {.x = x,
                           .outputs = outputs,
                           .prologue = {.norm = &norm},
                           .epilogue = {.multiplier = 0.5f, .activation = activation}});
    std::vector<float> all;
    if (activation != nullptr) return device_->get(activation->out);
    for (const MatmulOutput& output : outputs) {
      const std::vector<float> values = device_->get(output.out);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  // `gated`: the activation of the first two.
  void expect_each_alone(const std::vector<std::unique_ptr<PackedMatrix>>& matrices, bool gated) {
    weight_ = device_->put(random_.normal(4096), {4096});
    for (const std::int64_t tokens : {1, 2, 3, 8, 9, 16, 21, 300}) {
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
      const Distance distance(together, alone);
      // Activations are int8 limbs, or binary16.
      EXPECT_LE(distance.furthest, 5e-4f * distance.largest) << tokens << " tokens";
    }
  }

  // Returns a feed-forward layer's result for one token, added to `before`. `left`: the
  // multiplication by the gate is deferred to down. `parts`: down leaves a k_split as partial sums.
  std::vector<float> feed_forward(const GatedMatrices& matrices, const std::vector<float>& before,
                                  bool left, bool parts) {
    const std::int64_t width = matrices.gate->out();
    const std::int64_t columns = matrices.down->out();
    // Random values, which must be overwritten.
    const TensorView inner = device_->put(random_.normal(2 * width), {1, 2 * width});
    const TensorView partial = device_->put(random_.normal(columns), {1, 1, columns});
    const ActivateArgs silu{.gate = slice_columns(inner, 0, width),
                            .up = slice_columns(inner, width, width),
                            .out = slice_columns(inner, 0, width),
                            .deferred_gate_mul = left};
    const MatmulOutput first[] = {{matrices.gate, silu.gate, {}}, {matrices.up, silu.up, {}}};
    const MatmulOutput last{matrices.down, device_->put(before, {1, columns}), {}};
    ExecContext& ctx = device_->context();
    device_->ops().matmul(
        ctx, {.x = short_row_,
              .outputs = first,
              .epilogue = {.multiplier = 0.25f, .activation = left ? &silu : nullptr}});
    if (!left) device_->ops().activate(ctx, silu);
    device_->ops().matmul(
        ctx, {.x = silu.out,
              .outputs = {&last, 1},
              .prologue = {.deferred_mul = left ? silu.up : TensorView{}},
              .epilogue = {.accumulate = true, .partials_out = parts ? partial : TensorView{}}});
    std::vector<float> result = device_->get(last.out);
    if (!parts) return result;
    const std::vector<float> more = device_->get(partial);
    for (std::size_t i = 0; i < more.size(); ++i) result[i] += more[i];
    return result;
  }

  void expect_deferred_as_run(const GatedMatrices& matrices) {
    short_row_ = device_->put(random_.normal(256), {1, 256});
    const std::vector<float> before =
        random_.normal(static_cast<std::size_t>(matrices.down->out()));
    const bool has_parts =
        fusion_of(device_->context(), {.tokens = 1, .adds = matrices.down}).partials > 0;
    for (int parts = 0; parts <= (has_parts ? 1 : 0); ++parts) {
      const std::vector<float> run = feed_forward(matrices, before, false, parts != 0);
      const std::vector<float> left = feed_forward(matrices, before, true, parts != 0);
      const Distance distance(left, run);
      EXPECT_GT(distance.largest, 0.0f);
      EXPECT_LE(distance.furthest, 1e-5f * distance.largest) << (parts != 0 ? "in parts" : "whole");
    }
  }

  Random random_{81};
  Engine engine_{82};

 private:
  // SiLU of the first half times the second half.
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
  TensorView short_row_;
};

// Long groups, and short ones, whose k_blocks are paired.
TEST_F(CudaSeveralInputs, OfQueriesKeysAndValues) {
  for (const std::int32_t features : {32, 64, 128}) {
    for (const bool same_order : {false, true}) {
      SCOPED_TRACE(std::to_string(features) + (same_order ? ", one order" : ""));
      std::vector<std::unique_ptr<PackedMatrix>> matrices;
      matrices.push_back(exl2(groups_of(features, {5, 4, 4, 3}), 4096, same_order));
      matrices.push_back(exl2(groups_of(features, {4, 3}), 1024, same_order));
      matrices.push_back(exl2(groups_of(32, {5, 5, 4}), 1024, same_order));
      expect_each_alone(matrices, false);
    }
  }
  // Few columns: ranges with n_tiles of all three matrices.
  std::vector<std::unique_ptr<PackedMatrix>> few;
  for (const int bits : {2, 3, 4}) few.push_back(exl2(groups_of(64, {bits}), 96, false));
  expect_each_alone(few, false);
}

TEST_F(CudaSeveralInputs, OfGateAndUp) {
  for (const std::int32_t features : {32, 64, 128}) {
    for (const bool same_order : {false, true}) {
      SCOPED_TRACE(std::to_string(features) + (same_order ? ", one order" : ""));
      std::vector<std::unique_ptr<PackedMatrix>> matrices;
      matrices.push_back(exl2(groups_of(features, {6, 4}), 6144, same_order));
      matrices.push_back(exl2(groups_of(features, {6, 6, 5}), 6144, same_order));
      expect_each_alone(matrices, true);
    }
  }
}

// SiLU(gate) and up of one token stay apart, and down multiplies them itself: the results are those
// of a separate activation, for rows of any length and any permutation, with one k_split and two.
TEST_F(CudaSeveralInputs, DeferTheGateToTheirReader) {
  for (const std::int32_t width : {96, 1536, 5632, 11008, 14336, 28672}) {
    for (const std::int32_t features : {32, 128}) {
      for (const bool is_identity : {false, true}) {
        SCOPED_TRACE(std::to_string(width) + ", groups of " + std::to_string(features) +
                     (is_identity ? ", in order" : ""));
        Exl2Matrix matrix = random_exl2(
            groups_of(std::min(features, width % 128 == 0 ? 128 : 32), {5, 4, 3}, width), 512,
            engine_);
        if (is_identity) std::iota(matrix.perm.begin(), matrix.perm.end(), 0);
        const auto gate = exl2(groups_of(32, {6, 4}, 256), width, false);
        const auto up = exl2(groups_of(32, {5, 4}, 256), width, false);
        const auto down = device_->backend().pack(matrix, {});
        expect_deferred_as_run({gate.get(), up.get(), down.get()});
      }
    }
  }
}

// The multiplication is deferred only where that pays.
TEST_F(CudaSeveralInputs, OneInputLayoutActivatesItself) {
  const auto first = exl2(groups_of(32, {6, 4}), 1536, true);
  const auto second = exl2(groups_of(32, {6, 4}), 1536, true);
  const auto other = exl2(groups_of(64, {6, 4}), 1536, true);
  const auto down = exl2(groups_of(32, {4}, 1536), 512, false);
  const TensorView one = device_->put(random_.normal(1536), {1, 1536});
  const TensorView two = device_->put(random_.normal(2 * 1536), {2, 1536});
  const auto left = [&](const auto& gate, const auto& up, ActivateArgs activation) {
    return fusion_of(device_->context(), {.tokens = activation.gate.rows(),
                                          .gated = {gate.get(), up.get(), down.get()},
                                          .activation = &activation})
        .deferred_gate_mul;
  };
  const ActivateArgs silu{.gate = one, .up = one, .out = one};
  EXPECT_TRUE(left(first, other, silu));
  EXPECT_FALSE(left(first, second, silu));
  EXPECT_FALSE(left(first, other, {.gate = two, .up = two, .out = two}));
  EXPECT_FALSE(left(first, other, {.gate = one, .up = one, .out = one, .limit = 7.0f}));
  ActivateArgs gelu = silu;
  gelu.kind = Activation::kGelu;
  EXPECT_FALSE(left(first, other, gelu));
}

// Matrices that differ only in their zero point, by which GEMMs of 3 to 16 tokens multiply the sums
// of activations.
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
