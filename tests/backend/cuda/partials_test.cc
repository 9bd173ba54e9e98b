// Split-K partial sums that GEMMs of a few tokens leave beside their output and read.

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cuda/on_cuda_device.h"
#include "format/dequantize.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

class CudaPartials : public OnCudaDevice {
 protected:
  struct Case {
    WeightMatrix matrix;
    bool leaves_partials = false;  // whether partial sums are expected
    std::int64_t tokens = 1;
    bool biased = true;
  };

  TensorView random_rows(std::int64_t tokens, std::int64_t width) {
    return device_->put(random_.normal(tokens * width), {tokens, width});
  }
  TensorView random_partials(std::int64_t partials, std::int64_t tokens, std::int64_t width) {
    return device_->put(random_.normal(partials * tokens * width), {partials, tokens, width});
  }

  // Checks out += 0.5 · norm(x) · W + bias against double arithmetic, with partial sums where the
  // mask says so (1: of x, 2: of out, 4: left by the GEMM, 8: the sum of x and its partial sums is
  // stored too; 16: rows of x are not whole aligned float4s).
  void expect_right(const Case& c, unsigned mask, bool normalise) {
    const std::int64_t in = in_features(c.matrix);
    const std::int64_t width = out_features(c.matrix);
    const auto packed = device_->backend().pack(c.matrix, {});
    const OpTable& ops = device_->ops();
    const std::int64_t left_count =
        fusion_of(device_->context(), {.tokens = c.tokens, .adds = packed.get()}).partials;
    ASSERT_EQ(left_count > 0, c.leaves_partials);
    ASSERT_LE(left_count, kMaxPartials);
    const std::int64_t partials = c.tokens == 1 ? 1 : kMaxPartials;
    // Rows that are not 16-byte aligned.
    const int padding = (mask & 16u) != 0 ? 1 : 0;
    const TensorView x =
        device_->put_strided(random_.normal(c.tokens * in), {c.tokens, in}, padding);
    const TensorView out = random_rows(c.tokens, width);
    const TensorView bias = c.biased ? random_rows(1, width)
                                     : device_->put(std::vector<float>(width, 0.0f), {1, width});
    const TensorView x_sum = (mask & 9u) == 9 ? random_rows(c.tokens, in) : TensorView{};
    const TensorView x_partials =
        (mask & 1u) != 0 ? random_partials(partials, c.tokens, in) : TensorView{};
    const TensorView out_partials =
        (mask & 2u) != 0 ? random_partials(partials, c.tokens, width) : TensorView{};
    const TensorView left =
        (mask & 4u) != 0 ? random_partials(std::max<std::int64_t>(left_count, 1), c.tokens, width)
                         : TensorView{};
    const TensorView weight = random_rows(1, in);
    const NormArgs norm{.x = {},
                        .out = {},
                        .weight = view_of(weight.as<float>(), {in}),
                        .bias = {},
                        .kind = NormKind::kRms,
                        .eps = 1e-5f};
    const std::vector<double> expected =
        sums(c, {sum_of(x, x_partials), sum_of(out, out_partials), device_->get(bias),
                 normalise ? device_->get(weight) : std::vector<float>{}});
    const std::vector<float> whole_x = sum_of(x, x_partials);
    const MatmulOutput output{packed.get(), out,
                              c.biased ? view_of(bias.as<float>(), {width}) : TensorView{}};
    ops.matmul(
        device_->context(),
        {.x = x,
         .outputs = {&output, 1},
         .prologue = {.partials = x_partials, .sum = x_sum, .norm = normalise ? &norm : nullptr},
         .epilogue = {.multiplier = 0.5f,
                      .accumulate = true,
                      .partials = out_partials,
                      .partials_out = left}});
    if (!x_sum.empty()) {
      EXPECT_LE(worst_difference(device_->get(x_sum), whole_x), 1e-5) << "partials " << mask;
    }
    const std::vector<float> actual = sum_of(out, left);
    double most = 1.0;
    for (const double value : expected) most = std::max(most, std::abs(value));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 2e-3 * most) << "partials " << mask << ", column " << i;
    }
    // Launches for one token leave partial sums also where something else has to be added up.
    const bool stay = c.tokens == 1 || (!c.biased && (mask & 2u) == 0 && (normalise || mask == 4));
    if (c.leaves_partials && !left.empty() && stay) {
      const std::vector<float> partial = device_->get(left);
      const auto is_zero = [](float value) { return value == 0.0f; };
      EXPECT_FALSE(std::all_of(partial.begin(), partial.end(), is_zero)) << "nothing was left";
    }
  }

  void expect_right(const Case& c) {
    for (unsigned mask = 0; mask < 8; ++mask) {
      expect_right(c, mask, false);
      expect_right(c, mask, true);
    }
    expect_right(c, 9, true);
  }

  Random random_{61};
  Engine engine_{62};

 private:
  struct Operands {
    std::vector<float> x, out, bias, weight;
  };

  std::vector<float> sum_of(const TensorView& rows, const TensorView& partial) {
    std::vector<float> sum = device_->get(rows);
    if (partial.empty()) return sum;
    const std::vector<float> more = device_->get(partial);
    for (std::size_t i = 0; i < more.size(); ++i) sum[i % sum.size()] += more[i];
    return sum;
  }

  static std::vector<double> sums(const Case& c, const Operands& operands) {
    const auto in = static_cast<std::size_t>(in_features(c.matrix));
    const auto width = static_cast<std::size_t>(out_features(c.matrix));
    const std::vector<std::uint16_t> halves = dequantize_to_half(c.matrix);
    std::vector<float> weights(halves.size());
    std::transform(halves.begin(), halves.end(), weights.begin(), half_to_float);
    std::vector<double> result;
    for (std::size_t t = 0; t < static_cast<std::size_t>(c.tokens); ++t) {
      std::vector<double> x(operands.x.begin() + static_cast<std::ptrdiff_t>(t * in),
                            operands.x.begin() + static_cast<std::ptrdiff_t>((t + 1) * in));
      if (!operands.weight.empty()) {
        double squares = 0;
        for (const double value : x) squares += value * value;
        const double factor = 1.0 / std::sqrt(squares / static_cast<double>(in) + 1e-5);
        for (std::size_t i = 0; i < in; ++i) x[i] *= factor * operands.weight[i];
      }
      std::vector<double> row(width, 0.0);
      for (std::size_t i = 0; i < in; ++i) {
        for (std::size_t n = 0; n < width; ++n) row[n] += x[i] * weights[i * width + n];
      }
      for (std::size_t n = 0; n < width; ++n) {
        result.push_back(operands.out[t * width + n] + 0.5 * row[n] + operands.bias[n]);
      }
    }
    return result;
  }
};

TEST_F(CudaPartials, LongRowsLeaveOne) {
  // All widths, short groups where K is split; few n_tiles, and more than CTAs.
  std::vector<GroupShape> groups{{8, 64}, {6, 96}, {5, 128}};
  groups.insert(groups.end(), 38, GroupShape{4, 64});
  groups.insert(groups.end(), 29, GroupShape{3, 32});
  groups.insert(groups.end(), 11, GroupShape{2, 160});
  for (const std::int64_t out : {32, 1088, 2304}) {
    expect_right({random_exl2(groups, out, engine_), true});
  }
  // Narrow codes alone have a kernel of their own, and so have wide ones.
  expect_right({random_exl2(std::vector<GroupShape>(80, {3, 64}), 2080, engine_), true});
  expect_right({random_exl2(std::vector<GroupShape>(40, {6, 128}), 96, engine_), true});
  // K_blocks in pairs, with and without a partner; their kernel takes no bias.
  std::vector<GroupShape> shorts(3, {4, 32});
  shorts.insert(shorts.end(), 31, GroupShape{3, 64});
  shorts.insert(shorts.end(), 50, GroupShape{2, 64});
  for (const std::int64_t out : {96, 2336}) {
    expect_right({random_exl2(shorts, out, engine_), true, 1, false});
  }
  // One zero point for all groups, one a group, and 16-bit zero points, with and without a
  // permutation.
  expect_right({random_gptq({4, 5632, 192, 128, true, GptqZeros::kConstant}, engine_), true});
  expect_right({random_gptq({4, 5120, 1088, 128, false, GptqZeros::kConstant}, engine_), true});
  expect_right({random_gptq({4, 5120, 96, 64, true, GptqZeros::kBytes}, engine_), true});
  expect_right({random_gptq({3, 5120, 64, 5120, false, GptqZeros::kWords}, engine_), true});
  // A longer row than a thread holds at once.
  expect_right({random_exl2({{4, 14336}, {5, 3072}}, 96, engine_), true});
}

// Down projections as converters write them: a tenth of the features in short groups of five bits,
// most in long groups of four, the rest of three. Without a bias, so that the plain kernels take
// them.
TEST_F(CudaPartials, LongRowsAsModelsHaveThem) {
  for (const std::int32_t in : {5632, 11008, 14336, 28672}) {
    for (const std::int32_t more : {0, 1, 2, 3}) {  // short groups, which move the split
      SCOPED_TRACE(std::to_string(in) + " features, " + std::to_string(more));
      const std::int32_t first = (in / 10 / 128 + more) * 128;
      const std::int32_t last = in * 3 / 20 / 128 * 128;
      std::vector<GroupShape> groups(static_cast<std::size_t>(first / 32), GroupShape{5, 32});
      groups.insert(groups.end(), static_cast<std::size_t>((in - first - last) / 128), {4, 128});
      groups.insert(groups.end(), static_cast<std::size_t>(last / 128), {3, 128});
      expect_right({random_exl2(groups, 512, engine_), true, 1, false}, 4, false);
      expect_right({random_exl2(groups, 96, engine_), true, 1, false}, 7, true);
    }
  }
}

TEST_F(CudaPartials, OtherGemmsReadThem) {
  expect_right({random_exl2({{5, 64}, {4, 448}}, 256, engine_)});
  expect_right({random_gptq({4, 448, 136, 64, true, GptqZeros::kBytes}, engine_)});
  expect_right({random_dense({DType::kF16, 320, 96}, engine_)});
  expect_right({random_dense({DType::kBF16, 5120, 64}, engine_)});
  // Several tokens: activations in shared memory, and two tokens by gemv_i8.
  expect_right({random_exl2(std::vector<GroupShape>(42, {4, 128}), 64, engine_), false, 16});
  expect_right({random_exl2(std::vector<GroupShape>(20, {4, 128}), 64, engine_), false, 2});
}

// gemm_skinny_regs (compute capability 9.0 and later).
TEST_F(CudaPartials, SeveralTokensLeaveOneForEachKSplit) {
  const auto expect = [&](Case c) {
    expect_right(c, 7, true);
    c.biased = false;
    for (const unsigned mask : {4u, 13u, 29u}) expect_right(c, mask, true);
    for (const unsigned mask : {4u, 9u}) expect_right(c, mask, false);
  };
  std::vector<GroupShape> groups{{5, 96}, {4, 32}};
  groups.insert(groups.end(), 31, GroupShape{4, 128});
  groups.insert(groups.end(), 20, GroupShape{3, 64});
  disable_wgmma();  // so that gemm_skinny_regs also takes 19 tokens
  device_->backend().choose_launch("skinny_from", 3);
  for (const std::int64_t tokens : {3, 16, 19}) {
    expect({random_exl2(groups, 2568, engine_), true, tokens});
  }
  expect({random_gptq({4, 8192, 2568, 128, false, GptqZeros::kConstant}, engine_), true, 11});
  // One k_split: no partial sums are left, but those of x are read.
  expect({random_exl2(std::vector<GroupShape>(30, {4, 128}), 4096, engine_), false, 16});
  // Many k_splits.
  expect({random_exl2(std::vector<GroupShape>(180, {4, 128}), 640, engine_), true, 16});
}

}  // namespace
}  // namespace bl::test
