// Results that one op stages in binary16 for the next GEMM equal those that pass through F32.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cuda/on_cuda_device.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

// How a feed-forward layer is computed.
struct Way {
  bool halves = true;  // staged for down
  Activation kind = Activation::kSilu;
  const NormArgs* norm = nullptr;  // in front of gate and up
};

class CudaStagedInput : public OnCudaDevice {
 protected:
  std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix) {
    return device_->backend().pack(matrix, {});
  }

  std::unique_ptr<PackedMatrix> gptq(std::int64_t in, std::int64_t out, bool act_order,
                                     std::int32_t group = 64) {
    return pack(random_gptq({4, in, out, group, act_order, GptqZeros::kBytes}, engine_));
  }

  // F16 [out, in].
  std::unique_ptr<PackedMatrix> pack_dense(std::int64_t in, std::int64_t out) {
    auto stored = std::make_shared<Tensor>(make_host_tensor(DType::kF16, {out, in}));
    const std::vector<float> values =
        random_.normal(in * out, 1.0f / std::sqrt(static_cast<float>(in)));
    for (std::size_t i = 0; i < values.size(); ++i) stored->view().as<Half>()[i] = Half(values[i]);
    DenseMatrix matrix;
    matrix.name = "w";
    matrix.weight = {stored->view(), stored};
    return pack(matrix);
  }

  TensorView zeros(std::int64_t rows, std::int64_t columns) {
    return device_->put(std::vector<float>(static_cast<std::size_t>(rows * columns)),
                        {rows, columns});
  }

  StagedInput staged_for(const PackedMatrix& reader, std::int64_t tokens) {
    const std::int64_t width =
        fusion_of(device_->context(), {.tokens = tokens, .reader = &reader}).staged_width;
    StagedInput staged;
    staged.reader = &reader;
    staged.rows = view_of(zeros(tokens, (width + 1) / 2).data, DType::kF16, {tokens, width});
    staged.row_scales = zeros(1, tokens).as<float>();
    return staged;
  }

  // Returns the largest difference, relative to the largest magnitude.
  static double difference(const std::vector<float>& a, const std::vector<float>& b) {
    double largest = 0.0;
    double worst = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, static_cast<double>(std::fabs(b[i])));
      const double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
      worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    }
    return worst / largest;
  }

  // Returns that of the worst row, since rows may differ in magnitude.
  static double row_difference(const std::vector<float>& a, const std::vector<float>& b,
                               std::int64_t rows) {
    double worst = 0.0;
    const std::size_t width = a.size() / static_cast<std::size_t>(rows);
    for (std::size_t i = 0; i < a.size(); i += width) {
      worst = std::max(worst, difference({&a[i], &a[i] + width}, {&b[i], &b[i] + width}));
    }
    return worst;
  }

  // Makes GEMMs of a few tokens hold activations in registers, however small the matrices.
  void prefer_regs() {
    device_->backend().choose_launch("small_skinny_smem_from", 25);
    device_->backend().choose_launch("skinny_from", 3);
    disable_wgmma();
  }

  // Returns down(act(gate) · up), called as a block calls it. x: [tokens, in].
  std::vector<float> feed_forward(const PackedMatrix& gate, const PackedMatrix& up,
                                  const PackedMatrix& down, const TensorView& x, const Way& way) {
    const std::int64_t tokens = x.rows();
    const std::int64_t width = gate.out();
    const TensorView inner = zeros(tokens, 2 * width);
    const TensorView first = slice_columns(inner, 0, width);
    const TensorView second = slice_columns(inner, width, width);
    const StagedInput staged = staged_for(down, tokens);
    const ActivateArgs activation{.gate = first,
                                  .up = second,
                                  .out = first,
                                  .kind = way.kind,
                                  .staged_out = way.halves ? &staged : nullptr};
    const std::vector<MatmulOutput> outputs{{&gate, first, {}}, {&up, second, {}}};
    device_->ops().matmul(device_->context(), {.x = x,
                                               .outputs = outputs,
                                               .prologue = {.norm = way.norm},
                                               .epilogue = {.activation = &activation}});
    const TensorView out = zeros(tokens, down.out());
    const MatmulOutput last{&down, out, {}};
    device_->ops().matmul(device_->context(),
                          {.x = first,
                           .outputs = {&last, 1},
                           .staged_x = way.halves ? &staged : nullptr,
                           .epilogue = {.multiplier = 0.5f, .accumulate = true}});
    return device_->get(out);
  }

  // Normalises x [tokens, in] by a separate op.
  TensorView normalised(const TensorView& x, NormArgs norm) {
    const TensorView out = zeros(x.rows(), x.columns());
    norm.x = view_of(x.as<float>(), {x.rows(), 1, x.columns()});
    norm.out = view_of(out.as<float>(), {x.rows(), 1, x.columns()});
    device_->ops().norm(device_->context(), norm);
    return out;
  }

  // Compares GEMMs with a fused norm and behind a separate one.
  void expect_norms_in_rows(std::int64_t tokens);

  void expect_equal(const PackedMatrix& gate, const PackedMatrix& up, const PackedMatrix& down,
                    std::int64_t tokens = 91) {  // odd: rows are made two at a time
    ASSERT_GT(fusion_of(device_->context(), {.tokens = tokens, .reader = &down}).staged_width, 0);
    ASSERT_EQ(fusion_of(device_->context(), {.tokens = 12, .reader = &down}).staged_width, 0);
    for (const float scale : {1.0f, 1e-3f, 100.0f}) {
      const TensorView x =
          device_->put(random_.normal(tokens * gate.in(), scale), {tokens, gate.in()});
      EXPECT_LE(difference(feed_forward(gate, up, down, x, {true}),
                           feed_forward(gate, up, down, x, {false})),
                2e-3)
          << "scale " << scale;
    }
  }

  // Gate and up packed in down's feature order give the same bits as in their own.
  void expect_order_changes_nothing(const WeightMatrix& gate, const WeightMatrix& up,
                                    const Exl2Matrix& down, std::int64_t tokens,
                                    const Way& way = {}) {
    Exl2Matrix is_identity = down;
    std::iota(is_identity.perm.begin(), is_identity.perm.end(), 0);
    const PackOptions ordered{.out = down.in, .columns = down.perm};
    const auto first = pack(gate);
    const auto second = pack(up);
    const auto ordered_first = device_->backend().pack(gate, ordered);
    const auto ordered_second = device_->backend().pack(up, ordered);
    for (const float scale : {1.0f, 1e-3f, 1e3f}) {  // unscaled, and scaled by a power of two
      const TensorView x =
          device_->put(random_.normal(tokens * first->in(), scale), {tokens, first->in()});
      const std::vector<float> expected = feed_forward(*first, *second, *pack(down), x, way);
      for (int again = 0; again < 3; ++again) {
        ASSERT_EQ(feed_forward(*ordered_first, *ordered_second, *pack(is_identity), x, way),
                  expected)
            << tokens << " tokens, scale " << scale;
      }
    }
  }

  // A few tokens, with rows of extreme magnitudes beside usual ones.
  void expect_few_equal(const PackedMatrix& gate, const PackedMatrix& up,
                        const PackedMatrix& down) {
    prefer_regs();
    for (const std::int64_t tokens : {3, 8, 9, 16, 24}) {
      ASSERT_EQ(fusion_of(device_->context(), {.tokens = tokens, .reader = &down}).staged_width,
                down.in());
      for (const bool equal : {true, false}) {
        std::vector<float> values = random_.normal(tokens * gate.in());
        for (std::size_t i = 0; i < values.size() && !equal; ++i) {
          constexpr float kScales[] = {1.0f, 1e-6f, 300.0f, 0.05f, 0.0f, 1.0f, 1e4f};
          values[i] *= kScales[i / static_cast<std::size_t>(gate.in()) % 7];
        }
        const TensorView x = device_->put(values, {tokens, gate.in()});
        const std::vector<float> left = feed_forward(gate, up, down, x, {true});
        const std::vector<float> packed_rows = feed_forward(gate, up, down, x, {false});
        EXPECT_LE(row_difference(left, packed_rows, tokens), 2e-3) << tokens << " tokens";
      }
    }
  }

  Random random_{29};
  Engine engine_{30};
};

TEST_F(CudaStagedInput, FeedForwardOfPermutedCodes) {
  disable_wgmma();
  const std::vector<GroupShape> in{{5, 128}, {4, 128}};
  const auto gate = pack(random_exl2(in, 512, engine_));
  const auto up = pack(random_exl2(in, 512, engine_));
  const auto down = pack(random_exl2({{4, 256}, {3, 256}}, 96, engine_));
  expect_equal(*gate, *up, *down);
}

// Codes are dequantized in registers: gate and up write halves straight from the accumulators.
TEST_F(CudaStagedInput, FeedForwardOfCodesDecodedInRegisters) {
  if (!has_wgmma()) GTEST_SKIP() << "this card has no wgmma path";
  const std::vector<GroupShape> in{{5, 96}, {4, 128}, {8, 32}};
  const auto gate = pack(random_exl2(in, 528, engine_));
  const auto up = pack(random_exl2(in, 528, engine_));
  const auto is_identity = gptq(256, 512, false);
  for (const std::int64_t tokens : {19, 45, 91, 131}) {  // tiles of 32, 64 and 256 rows
    expect_equal(*gate, *up, *pack(random_exl2({{4, 272}, {3, 256}}, 96, engine_)), tokens);
    expect_equal(*is_identity, *is_identity, *gptq(512, 136, true), tokens);
  }
}

// The GEMM of gate and up writes what down reads.
TEST_F(CudaStagedInput, FeedForwardOfFeaturesInTheReadersOrder) {
  if (!has_wgmma()) GTEST_SKIP() << "this card has no wgmma path";
  const auto gate = random_exl2({{5, 96}, {4, 128}, {8, 32}}, 544, engine_);
  auto up = random_exl2({{6, 32}, {3, 160}, {2, 64}}, 544, engine_);
  up.perm = gate.perm;
  const auto down = random_exl2({{4, 288}, {3, 256}}, 96, engine_);
  const auto gptq_gate = random_gptq({4, 256, 544, 64, false, GptqZeros::kBytes}, engine_);
  const auto gptq_up = random_gptq({4, 256, 544, 32, false, GptqZeros::kBytes}, engine_);
  for (const std::int64_t tokens : {19, 45, 91, 131, 700}) {  // tiles of 32, 64 and 256 rows
    expect_order_changes_nothing(gate, up, down, tokens);
    expect_order_changes_nothing(gptq_gate, gptq_up, down, tokens);
    for (const Activation kind : {Activation::kGeluTanh, Activation::kRelu}) {
      expect_order_changes_nothing(gate, up, down, tokens, {true, kind});
    }
  }
  // More tiles than multiprocessors.
  const auto wide_gate = random_exl2({{5, 96}, {4, 160}}, 2336, engine_);
  auto wide_up = random_exl2({{4, 96}, {6, 160}}, 2336, engine_);
  wide_up.perm = wide_gate.perm;
  expect_order_changes_nothing(wide_gate, wide_up, random_exl2({{4, 1312}, {3, 1024}}, 96, engine_),
                               2100);
}

// Gate and up have permutations of their own: up's GEMM reads what gate's has stored.
TEST_F(CudaStagedInput, FeedForwardOfApartOrders) {
  if (!has_wgmma()) GTEST_SKIP() << "this card has no wgmma path";
  const auto gate = random_exl2({{5, 96}, {4, 128}, {8, 32}}, 544, engine_);
  const auto up = random_exl2({{6, 32}, {3, 160}, {2, 64}}, 544, engine_);
  const auto down = random_exl2({{4, 288}, {3, 256}}, 96, engine_);
  ASSERT_NE(gate.perm, up.perm);
  for (const std::int64_t tokens : {45, 131, 700}) {  // tiles of 64 and 256 rows
    for (const Activation kind : {Activation::kSilu, Activation::kGeluTanh, Activation::kRelu}) {
      expect_order_changes_nothing(gate, up, down, tokens, {true, kind});
    }
  }
  // More tiles than multiprocessors.
  expect_order_changes_nothing(random_exl2({{5, 96}, {4, 160}}, 2336, engine_),
                               random_exl2({{4, 96}, {6, 160}}, 2336, engine_),
                               random_exl2({{4, 1312}, {3, 1024}}, 96, engine_), 2100);
}

// As above behind a norm, which writes its rows in both orders.
TEST_F(CudaStagedInput, FeedForwardOfApartOrdersBehindANorm) {
  if (!has_wgmma()) GTEST_SKIP() << "this card has no wgmma path";
  const auto gate = random_exl2({{5, 96}, {4, 128}, {8, 32}}, 544, engine_);
  const auto up = random_exl2({{6, 32}, {3, 160}, {2, 64}}, 544, engine_);
  const auto down = random_exl2({{4, 288}, {3, 256}}, 96, engine_);
  const auto packed_gate = pack(gate);
  const auto packed_up = pack(up);
  const auto packed_down = pack(down);
  for (const float scale : {1.0f, 1e3f}) {
    NormArgs norm;
    norm.weight = device_->put(random_.normal(256, scale), {256});
    for (const std::int64_t tokens : {45, 131, 700}) {
      expect_order_changes_nothing(gate, up, down, tokens, {.norm = &norm});
      const TensorView x = device_->put(random_.normal(tokens * 256), {tokens, 256});
      EXPECT_LE(
          difference(feed_forward(*packed_gate, *packed_up, *packed_down, x, {.norm = &norm}),
                     feed_forward(*packed_gate, *packed_up, *packed_down, normalised(x, norm), {})),
          2e-3)
          << tokens << " tokens, scale " << scale;
    }
  }
}

// More tiles than multiprocessors.
TEST_F(CudaStagedInput, FeedForwardOfManyTiles) {
  if (!has_wgmma()) GTEST_SKIP() << "this card has no wgmma path";
  const std::vector<GroupShape> in{{5, 96}, {4, 128}, {8, 32}};
  const auto gate = pack(random_exl2(in, 2320, engine_));
  const auto up = pack(random_exl2(in, 2320, engine_));
  expect_equal(*gate, *up, *pack(random_exl2({{4, 1296}, {3, 1024}}, 96, engine_)), 1301);
}

TEST_F(CudaStagedInput, FewTokensOfPermutedCodes) {
  const std::vector<GroupShape> in{{5, 128}, {4, 128}};
  const auto gate = pack(random_exl2(in, 512, engine_));
  const auto up = pack(random_exl2(in, 512, engine_));
  expect_few_equal(*gate, *up, *pack(random_exl2({{4, 256}, {3, 256}}, 96, engine_)));
  // Split-K: more k than a CTA holds.
  const auto wide_gate = pack(random_exl2(in, 9216, engine_));
  const auto wide_up = pack(random_exl2(in, 9216, engine_));
  expect_few_equal(*wide_gate, *wide_up,
                   *pack(random_exl2({{5, 1024}, {4, 7168}, {2, 1024}}, 200, engine_)));
}

TEST_F(CudaStagedInput, FewTokensOfCodesInOrder) {
  const auto gate = gptq(256, 512, false);
  const auto up = gptq(256, 512, false);
  expect_few_equal(*gate, *up, *gptq(512, 136, false));
  expect_few_equal(*gate, *up, *gptq(512, 136, true));
}

// Gate and up use another kernel, and the activation is a separate op.
TEST_F(CudaStagedInput, FewTokensOfOtherGemms) {
  prefer_regs();
  const std::int64_t tokens = 19;
  const auto down = pack(random_exl2({{4, 256}, {3, 256}}, 96, engine_));
  const auto gate = pack_dense(256, 512);
  const auto up = pack_dense(256, 512);
  const TensorView x = device_->put(random_.normal(tokens * 256), {tokens, 256});
  EXPECT_LE(difference(feed_forward(*gate, *up, *down, x, {true}),
                       feed_forward(*gate, *up, *down, x, {false})),
            2e-3);
}

TEST_F(CudaStagedInput, FeedForwardOfCodesInOrder) {
  disable_wgmma();
  const auto gate = gptq(256, 512, false);
  const auto up = gptq(256, 512, false);
  expect_equal(*gate, *up, *gptq(512, 136, false));
  expect_equal(*gate, *up, *gptq(512, 136, true));
}

TEST_F(CudaStagedInput, FeedForwardOfPlainMatrices) {
  const auto gate = pack_dense(256, 512);
  const auto up = pack_dense(256, 512);
  const auto down = pack_dense(512, 80);
  expect_equal(*gate, *up, *down);
}

// Results so large or so small that the scale of the rows is not 1.
TEST_F(CudaStagedInput, ResultsOfAnySize) {
  const std::int64_t tokens = 81;
  const std::int64_t width = 512;
  const auto down = pack_dense(width, 64);
  for (const float scale : {1e-9f, 1e-4f, 1.0f, 3e4f, 1e12f}) {
    std::vector<float> results[2];
    const TensorView gate = device_->put(random_.normal(tokens * width), {tokens, width});
    const TensorView up = device_->put(random_.normal(tokens * width, scale), {tokens, width});
    for (const bool halves : {false, true}) {
      const StagedInput staged = staged_for(*down, tokens);
      const TensorView h = zeros(tokens, width);
      device_->ops().activate(
          device_->context(),
          {.gate = gate, .up = up, .out = h, .staged_out = halves ? &staged : nullptr});
      const TensorView out = zeros(tokens, 64);
      const MatmulOutput output{down.get(), out, {}};
      device_->ops().matmul(device_->context(), {.x = halves ? TensorView{} : h,
                                                 .outputs = {&output, 1},
                                                 .staged_x = halves ? &staged : nullptr});
      results[halves] = device_->get(out);
    }
    EXPECT_LE(difference(results[1], results[0]), 2e-3) << "scale " << scale;
  }
}

// Matrices with one permutation share packed activations, whatever their k_tiling.
TEST_F(CudaStagedInput, FewTokensOfOneOrder) {
  prefer_regs();
  const std::int64_t tokens = 16;
  const TensorView x = device_->put(random_.normal(tokens * 512), {tokens, 512});
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  for (const std::int32_t group : {64, 128, 32}) {
    packed.push_back(gptq(512, 96, false, group));
  }
  const TensorView together = zeros(tokens, 3 * 96);
  std::vector<MatmulOutput> outputs;
  for (std::int64_t i = 0; i < 3; ++i) {
    outputs.push_back(
        {packed[static_cast<std::size_t>(i)].get(), slice_columns(together, 96 * i, 96), {}});
  }
  device_->ops().matmul(device_->context(), {.x = x, .outputs = outputs});
  for (const MatmulOutput& output : outputs) {
    const TensorView alone = zeros(tokens, 96);
    const MatmulOutput one{output.weight, alone, {}};
    device_->ops().matmul(device_->context(), {.x = x, .outputs = {&one, 1}});
    EXPECT_LE(difference(device_->get(output.out), device_->get(alone)), 1e-5);
  }
}

// Matrices with adjacent outputs are multiplied together.
TEST_F(CudaStagedInput, NeighboursAreMultipliedTogether) {
  const std::int64_t tokens = 100;
  const std::int64_t in = 768;
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  std::int64_t width = 0;
  for (const std::int64_t out : {128, 48, 40}) {
    packed.push_back(gptq(in, out, false));
    width += out;
  }
  const TensorView x = device_->put(random_.normal(tokens * in), {tokens, in});
  const auto expect_together_as_alone = [&] {
    const TensorView together = zeros(tokens, width);
    std::vector<MatmulOutput> outputs;
    std::int64_t column = 0;
    for (const auto& matrix : packed) {
      outputs.push_back({matrix.get(), slice_columns(together, column, matrix->out()), {}});
      column += matrix->out();
    }
    device_->ops().matmul(device_->context(), {.x = x, .outputs = outputs});
    for (const MatmulOutput& output : outputs) {
      const TensorView alone = zeros(tokens, output.weight->out());
      const MatmulOutput one{output.weight, alone, {}};
      device_->ops().matmul(device_->context(), {.x = x, .outputs = {&one, 1}});
      EXPECT_LE(difference(device_->get(output.out), device_->get(alone)), 1e-5);
    }
  };
  disable_wgmma();
  expect_together_as_alone();
  prefer_wgmma();  // with split-K
  expect_together_as_alone();
}

void CudaStagedInput::expect_norms_in_rows(std::int64_t tokens) {
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    for (const std::int32_t in : {256, 2048, 2560, 8192}) {
      const auto permuted = pack(random_exl2({{4, in / 2}, {3, in / 2}}, 64, engine_));
      const auto plain = pack_dense(in, 64);
      std::vector<float> values = random_.normal(tokens * in);
      for (std::size_t i = 0; i < static_cast<std::size_t>(in); ++i) values[i] *= 1e4f;
      values[static_cast<std::size_t>(in) + 7] = 5e3f;
      const TensorView x = device_->put(values, {tokens, in});
      std::vector<float> weight = random_.normal(in);
      weight[9] = 70.0f;
      NormArgs norm{.x = {},
                    .out = {},
                    .weight = device_->put(weight, {in}),
                    .bias = {},
                    .kind = kind,
                    .unit_offset = kind == NormKind::kRms};
      if (kind == NormKind::kLayer) norm.bias = device_->put(random_.normal(in), {in});
      std::vector<float> results[2];
      const TensorView h = normalised(x, norm);
      for (const bool fused : {false, true}) {
        const TensorView out = zeros(tokens, 128);
        const std::vector<MatmulOutput> outputs{{permuted.get(), slice_columns(out, 0, 64), {}},
                                                {plain.get(), slice_columns(out, 64, 64), {}}};
        device_->ops().matmul(device_->context(), {.x = fused ? x : h,
                                                   .outputs = outputs,
                                                   .prologue = {.norm = fused ? &norm : nullptr}});
        results[fused] = device_->get(out);
      }
      EXPECT_LE(difference(results[1], results[0]), 2e-3) << in;
    }
  }
}

// A norm fused into binary16 rows, some far from 1; few rows, and so many that they are made two at
// a time, an odd number of them.
TEST_F(CudaStagedInput, NormsGoIntoTheRows) {
  for (const std::int64_t tokens : {70, 401}) {
    expect_norms_in_rows(tokens);
  }
}

struct AttentionCase {
  const char* name;
  std::vector<std::pair<int, int>> sequences;  // past, tokens
  CacheTypes type = CacheType::kF16;
};

TEST_F(CudaStagedInput, AttentionStagesHalves) {
  const int heads = 4;
  const int head_dim = 64;
  const std::int64_t width = heads * head_dim;
  const auto permuted = pack(random_exl2({{4, 128}, {3, 128}}, 96, engine_));
  const auto is_identity = gptq(width, 96, false);
  prefer_regs();
  for (const AttentionCase& c :
       {AttentionCase{"prefill", {{0, 70}, {0, 40}}},
        AttentionCase{"quantized", {{0, 90}}, CacheType::kQ8},
        AttentionCase{"exact", {{0, 90}}, CacheType::kF32},
        AttentionCase{"mixed", {{0, 66}, {100, 1}, {300, 2}}},
        AttentionCase{"few, decoded", {{100, 1}, {511, 1}, {0, 1}, {7, 1}}},
        AttentionCase{"few, one span", {{500, 4}}},
        AttentionCase{"few, quantized", {{90, 3}, {8, 2}}, CacheType::kQ6},
        AttentionCase{"few, exact", {{90, 3}}, CacheType::kF32},
        AttentionCase{"few, prefill", {{0, 21}}},
        AttentionCase{"few, mixed", {{0, 16}, {100, 1}}}}) {
    const KvLayout layout{c.type, 2, head_dim, head_dim};
    std::vector<std::vector<std::int32_t>> pages;
    std::vector<SequenceSpan> spans;
    std::int32_t tokens = 0;
    std::int32_t page = 0;
    for (std::size_t s = 0; s < c.sequences.size(); ++s) {
      pages.push_back({page, page + 1});
      page += 2;
    }
    for (std::size_t s = 0; s < pages.size(); ++s) {
      const auto& [past, count] = c.sequences[s];
      spans.push_back(
          {.first_token = tokens, .tokens = count, .past = past, .pages = pages[s].data()});
      tokens += count;
    }
    const PagedKvView cache{
        layout, device_->zeros(static_cast<std::size_t>(page) * layout.k_page_bytes()),
        device_->zeros(static_cast<std::size_t>(page) * layout.v_page_bytes()), page};
    std::vector<std::int64_t> slots;
    for (std::int64_t i = 0; i < std::int64_t{page} * kPageSlots; ++i) slots.push_back(i);
    const Shape rows{static_cast<std::int64_t>(slots.size()), 2, head_dim};
    device_->ops().kv_write(device_->context(),
                            {.k = device_->put(random_.normal(rows.elements()), rows),
                             .v = device_->put(random_.normal(rows.elements()), rows),
                             .cache = cache,
                             .slots = device_->put(slots)});
    const Shape shape{tokens, heads, head_dim};
    const TensorView q = device_->put(random_.normal(shape.elements()), shape);
    for (const PackedMatrix* reader : {permuted.get(), is_identity.get()}) {
      std::vector<float> results[2];
      for (const bool halves : {false, true}) {
        const StagedInput staged = staged_for(*reader, tokens);
        const TensorView out = zeros(tokens, width);
        TensorView out_heads = out;
        out_heads.shape = shape;
        ArenaScope scope(*device_->context().scratch);
        device_->ops().attention(device_->context(), {.q = q,
                                                      .out = halves ? TensorView{} : out_heads,
                                                      .cache = cache,
                                                      .sequences = spans,
                                                      .plan = device_->backend().plan_attention(
                                                          device_->context(), spans),
                                                      .scale = 0.125f,
                                                      .sinks = {},
                                                      .alibi_slopes = {},
                                                      .staged_out = halves ? &staged : nullptr});
        const TensorView result = zeros(tokens, 96);
        const MatmulOutput output{reader, result, {}};
        device_->ops().matmul(device_->context(), {.x = halves ? TensorView{} : out,
                                                   .outputs = {&output, 1},
                                                   .staged_x = halves ? &staged : nullptr});
        results[halves] = device_->get(result);
      }
      EXPECT_LE(difference(results[1], results[0]), 2e-3) << c.name;
    }
  }
}

}  // namespace
}  // namespace bl::test
