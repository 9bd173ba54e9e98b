// gemv_i8 with several tokens: each token has the bits that it has beside other ones, and, but for
// rounding, the results that it has alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cuda/on_cuda_device.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

class CudaGemvI8 : public OnCudaDevice {
 protected:
  void SetUp() override {
    OnCudaDevice::SetUp();
    if (device_ != nullptr) device_->backend().choose_launch("skinny_from", 5);
  }

  std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix) {
    return device_->backend().pack(matrix, {});
  }
  std::unique_ptr<PackedMatrix> exl2(const std::vector<GroupShape>& groups, std::int64_t out) {
    return pack(random_exl2(groups, out, engine_));
  }
  // Rows of different magnitudes; the results are added to values.
  TensorView rows(std::int64_t count, std::int64_t width) {
    std::vector<float> values = random_.normal(count * width);
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) values[i] *= 1e3f;
    return device_->put(values, {count, width});
  }
  std::vector<float> multiply(const std::vector<const PackedMatrix*>& matrices, const TensorView& x,
                              const std::vector<TensorView>& out, const NormArgs* norm) {
    std::vector<MatmulOutput> outputs;
    for (std::size_t i = 0; i < matrices.size(); ++i) outputs.push_back({matrices[i], out[i], {}});
    device_->ops().matmul(device_->context(),
                          {.x = x,
                           .outputs = outputs,
                           .prologue = {.norm = norm},
                           .epilogue = {.multiplier = 0.5f, .accumulate = norm == nullptr}});
    std::vector<float> all;
    for (const TensorView& view : out) {
      const std::vector<float> values = device_->get(view);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  struct Gemm {
    std::vector<float> bias = {};
    std::vector<float> norm = {};
    bool split_k = false;  // with two k_splits, if the matrix has them
  };
  // Returns the results of one token, and the partial sums beside them.
  std::vector<float> gemm(const Exl2Matrix& matrix, const std::vector<float>& x, const Gemm& of) {
    const auto packed = pack(matrix);
    const TensorView all = device_->put(
        std::vector<float>(static_cast<std::size_t>(2 * matrix.out), 1.5f), {2, matrix.out});
    const MatmulOutput output{packed.get(), slice_rows(all, 0, 1),
                              of.bias.empty() ? TensorView{} : device_->put(of.bias, {matrix.out})};
    const bool k_splits =
        of.split_k &&
        fusion_of(device_->context(), {.tokens = 1, .adds = packed.get()}).partials > 0;
    NormArgs norm{.x = {}, .out = {}, .weight = {}, .bias = {}, .kind = NormKind::kRms};
    if (!of.norm.empty()) norm.weight = device_->put(of.norm, {matrix.in});
    device_->ops().matmul(
        device_->context(),
        {.x = device_->put(x, {1, matrix.in}),
         .outputs = {&output, 1},
         .prologue = {.norm = of.norm.empty() ? nullptr : &norm},
         .epilogue = {.accumulate = true,
                      .partials_out = k_splits ? slice_rows(all, 1, 1) : TensorView{}}});
    return device_->get(all);
  }
  // From the order of features to the order of k.
  static std::vector<float> ordered(const std::vector<float>& values, const Exl2Matrix& matrix) {
    std::vector<float> by_k;
    for (const std::int32_t feature : matrix.perm) {
      by_k.push_back(values[static_cast<std::size_t>(feature)]);
    }
    return by_k;
  }

  // Multiplies four rows at once, then some of them, then each alone.
  void expect_independent(const std::vector<const PackedMatrix*>& matrices, bool normalise) {
    constexpr std::int64_t kRows = 4;
    const std::int64_t in = matrices[0]->in();
    const TensorView x = rows(kRows, in);
    NormArgs norm{.x = {}, .out = {}, .weight = device_->put(random_.normal(in), {in}), .bias = {}};
    norm.kind = NormKind::kRms;
    // Returns the results of rows [first, first + count), matrix by matrix.
    const auto run = [&](std::int64_t first, std::int64_t count) {
      Random random(9);
      std::vector<std::vector<float>> results;
      std::vector<TensorView> out;
      for (const PackedMatrix* matrix : matrices) {
        const TensorView all =
            device_->put(random.normal(kRows * matrix->out()), {kRows, matrix->out()});
        out.push_back(slice_rows(all, first, count));
      }
      multiply(matrices, slice_rows(x, first, count), out, normalise ? &norm : nullptr);
      for (const TensorView& view : out) results.push_back(device_->get(view));
      return results;
    };
    const auto together = run(0, kRows);
    for (const std::int64_t count : {1, 2, 3}) {
      for (std::int64_t first = 0; first + count <= kRows; ++first) {
        const auto some = run(first, count);
        for (std::size_t m = 0; m < matrices.size(); ++m) {
          const float* expected = together[m].data() + first * matrices[m]->out();
          expect_rows(some[m], expected, matrices[m]->out(), count > 1);
        }
      }
    }
  }
  static void expect_rows(const std::vector<float>& rows, const float* expected, std::int64_t width,
                          bool to_the_bit) {
    for (std::size_t first = 0; first < rows.size(); first += static_cast<std::size_t>(width)) {
      float most = 0.0f;
      for (std::int64_t i = 0; i < width; ++i) most = std::max(most, std::abs(expected[i]));
      for (std::int64_t i = 0; i < width; ++i) {
        const float value = rows[first + static_cast<std::size_t>(i)];
        if (to_the_bit) {
          ASSERT_EQ(value, expected[i]) << "column " << i;
        } else {
          ASSERT_NEAR(value, expected[i], 1e-5f * most) << "column " << i;
        }
      }
      expected += width;
    }
  }

  Random random_{51};
  Engine engine_{52};
};

TEST_F(CudaGemvI8, TokensAreIndependent) {
  // All widths, k_blocks of one k_step, groups that fill no k_block; few columns and many.
  const std::vector<GroupShape> wide{{8, 32}, {6, 64}, {5, 32}, {4, 128}, {3, 96}, {2, 160}};
  for (const std::int64_t out : {32, 208, 9024}) {
    const auto matrix = exl2(wide, out);
    for (const bool normalise : {false, true}) expect_independent({matrix.get()}, normalise);
  }
  // A longer row than a thread holds at once.
  const auto deep = exl2({{4, 6144}, {5, 2048}}, 64);
  expect_independent({deep.get()}, false);
  // Three matrices with input layouts of their own.
  const auto q = exl2(wide, 96);
  const auto k = exl2({{4, 512}}, 32);
  const auto v = exl2({{3, 256}, {6, 256}}, 32);
  for (const bool normalise : {false, true}) {
    expect_independent({q.get(), k.get(), v.get()}, normalise);
  }
  for (const GptqZeros zeros : {GptqZeros::kConstant, GptqZeros::kBytes, GptqZeros::kWords}) {
    const auto gptq = pack(random_gptq({4, 512, 160, 64, true, zeros}, engine_));
    for (const bool normalise : {false, true}) expect_independent({gptq.get()}, normalise);
  }
}

// An identity permutation is not looked up: the bits are those of a matrix with any permutation.
// With several rounds, with a bias, and with two k_splits.
TEST_F(CudaGemvI8, IdentityPermutation) {
  using Groups = std::vector<GroupShape>;
  for (const Groups& groups :
       {Groups{{8, 32}, {6, 64}, {5, 32}, {4, 128}, {3, 96}, {2, 160}}, Groups{{4, 512}},
        Groups{{3, 32}}, Groups{{4, 14336}, {5, 3072}, {3, 96}}, Groups{{2, 65504}, {4, 32}}}) {
    const Exl2Matrix anywhere = random_exl2(groups, 96, engine_);
    Exl2Matrix is_identity = anywhere;
    std::iota(is_identity.perm.begin(), is_identity.perm.end(), 0);
    const std::vector<float> values = random_.normal(anywhere.in);
    const std::vector<float> norm = random_.normal(anywhere.in);
    for (const bool biased : {false, true}) {
      for (const bool split_k : {false, true}) {
        const Gemm of{.bias = biased ? random_.normal(96) : std::vector<float>{},
                      .split_k = split_k};
        const std::vector<float> expected = gemm(anywhere, values, of);
        EXPECT_EQ(gemm(is_identity, ordered(values, anywhere), of), expected)
            << anywhere.in << " features" << (biased ? ", biased" : "")
            << (split_k ? ", two k_splits" : "");
        // The squares are added in another order.
        Gemm normed = of;
        normed.norm = norm;
        const std::vector<float> expected_normed = gemm(anywhere, values, normed);
        normed.norm = ordered(norm, anywhere);
        EXPECT_LE(
            worst_difference(gemm(is_identity, ordered(values, anywhere), normed), expected_normed),
            1e-5);
      }
    }
  }
}

// Prefetching keys for the next attention changes no bit, wherever its pieces end, with pages
// anywhere, and next to the end of the cache.
TEST_F(CudaGemvI8, PrefetchingKeysChangesNothing) {
  const auto q = exl2({{4, 256}, {3, 128}}, 32 * 64);
  const TensorView x = rows(1, q->in());
  const auto run = [&](const AttentionArgs* behind) {
    const TensorView out = device_->put(std::vector<float>(32 * 64, 0.0f), {1, 32 * 64});
    const MatmulOutput output{q.get(), out, {}};
    device_->ops().matmul(device_->context(),
                          {.x = x,
                           .outputs = {&output, 1},
                           .prefetch = {.attention = behind, .feeds_attention = true}});
    return device_->get(out);
  };
  const std::vector<float> expected = run(nullptr);
  for (const CacheTypes type : {CacheTypes(CacheType::kF16), CacheTypes(CacheType::kQ4)}) {
    for (const int kv_heads : {2, 32}) {
      const KvLayout layout{type, kv_heads, 64, 64};
      for (const std::int32_t past : {0, 15, 511, 700, 4100}) {
        const std::int64_t pages = past / kPageSlots + 1;
        std::vector<std::int32_t> table;
        for (std::int64_t i = 0; i < pages; ++i) {
          table.push_back(static_cast<std::int32_t>(pages - 1 - i));
        }
        const PagedKvView cache{
            .layout = layout,
            .k = device_->zeros(static_cast<std::size_t>(pages) * layout.k_page_bytes()),
            .v = device_->zeros(static_cast<std::size_t>(pages) * layout.v_page_bytes()),
            .pages = static_cast<int>(pages)};
        const std::vector<SequenceSpan> spans{
            {.first_token = 0, .tokens = 1, .past = past, .pages = table.data()}};
        AttentionArgs behind{.q = device_->put(std::vector<float>(32 * 64), {1, 32, 64}),
                             .out = {},
                             .cache = cache,
                             .sequences = spans,
                             .sinks = {},
                             .alibi_slopes = {}};
        behind.plan = device_->backend().plan_attention(device_->context(), spans);
        EXPECT_EQ(run(&behind), expected) << kv_heads << " heads, " << past << " tokens";
      }
    }
  }
}

// Prefetching weights of later GEMMs changes no bit, whatever they are and whichever GEMM
// prefetches.
TEST_F(CudaGemvI8, PrefetchingWeightsChangesNothing) {
  const auto q = exl2({{4, 256}, {3, 128}}, 32 * 64);
  const TensorView x = rows(1, q->in());
  const std::unique_ptr<PackedMatrix> behind[] = {
      exl2({{4, 4096}}, 2000),         // more n_tiles than lanes prefetch at a time
      exl2({{5, 96}, {2, 5120}}, 96),  // two k_splits
      exl2({{6, 128}}, 32),            // short n_tiles
      pack(random_gptq({4, 4096, 64, 32, true, GptqZeros::kWords}, engine_)),
      pack(random_dense({DType::kF16, 64, 32}, engine_))};
  const auto run = [&](const NextWeights& next, bool adds) {
    const TensorView out = device_->put(std::vector<float>(32 * 64, 0.0f), {1, 32 * 64});
    const MatmulOutput output{q.get(), out, {}};
    ExecContext ctx = device_->context();
    const PrefetchHint hint{.weights = next};
    device_->ops().matmul(
        ctx, {.x = x, .outputs = {&output, 1}, .epilogue = {.accumulate = adds}, .prefetch = hint});
    return device_->get(out);
  };
  const std::vector<float> expected = run({}, false);
  for (const auto& matrix : behind) {
    for (const bool second : {false, true}) {
      EXPECT_EQ(run({{matrix.get(), behind[0].get()}, 2, second}, second), expected);
    }
  }
  EXPECT_EQ(run({{behind[0].get(), behind[1].get(), behind[2].get(), behind[3].get()}, 4}, true),
            expected);
}

}  // namespace
}  // namespace bl::test
