// Two tokens in whole numbers: each has the bits that it has alone.

#include <gtest/gtest.h>

#include "backend/cuda/on_cuda_device.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

class CudaTokenProduct : public OnCudaDevice {
 protected:
  void SetUp() override {
    OnCudaDevice::SetUp();
    if (device_ != nullptr) device_->backend().choose_launch("prepared_from", 3);
  }

  std::unique_ptr<PackedMatrix> pack(const WeightMatrix& matrix) {
    return device_->backend().pack(matrix, {});
  }
  std::unique_ptr<PackedMatrix> exl2(const std::vector<GroupShape>& groups, std::int64_t out) {
    return pack(random_exl2(groups, out, engine_));
  }
  // Rows of different sizes, results that have something in them already.
  TensorView rows(std::int64_t count, std::int64_t width) {
    std::vector<float> values = random_.normal(count * width);
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) values[i] *= 1e3f;
    return device_->put(values, {count, width});
  }
  std::vector<float> multiply(const std::vector<const PackedMatrix*>& matrices, const TensorView& x,
                              const std::vector<TensorView>& out, const NormArgs* norm) {
    std::vector<MatmulOutput> outputs;
    for (std::size_t i = 0; i < matrices.size(); ++i) outputs.push_back({matrices[i], out[i], {}});
    device_->ops().matmul(device_->context(), {.x = x,
                                               .outputs = outputs,
                                               .multiplier = 0.5f,
                                               .accumulate = norm == nullptr,
                                               .norm = norm});
    std::vector<float> all;
    for (const TensorView& view : out) {
      const std::vector<float> values = device_->get(view);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  // Both rows at once, then each by itself.
  void expect_same_bits(const std::vector<const PackedMatrix*>& matrices, bool normalise) {
    const std::int64_t in = matrices[0]->in();
    const TensorView x = rows(2, in);
    NormArgs norm{.x = {}, .out = {}, .weight = device_->put(random_.normal(in), {in}), .bias = {}};
    norm.kind = NormKind::kRms;
    const auto run = [&](std::int64_t first, std::int64_t count) {
      Random random(9);
      std::vector<TensorView> out;
      for (const PackedMatrix* matrix : matrices) {
        const TensorView both = device_->put(random.normal(2 * matrix->out()), {2, matrix->out()});
        out.push_back(slice_rows(both, first, count));
      }
      return multiply(matrices, slice_rows(x, first, count), out, normalise ? &norm : nullptr);
    };
    const std::vector<float> together = run(0, 2);
    const std::vector<float> alone[2] = {run(0, 1), run(1, 1)};
    std::size_t at = 0;
    std::size_t at_alone = 0;
    for (const PackedMatrix* matrix : matrices) {
      const auto width = static_cast<std::size_t>(matrix->out());
      for (const auto& row : alone) {
        for (std::size_t i = 0; i < width; ++i) {
          ASSERT_EQ(together[at++], row[at_alone + i]) << "column " << i;
        }
      }
      at_alone += width;
    }
  }

  Random random_{51};
  Engine engine_{52};
};

TEST_F(CudaTokenProduct, TwoTokensHaveTheBitsOfOne) {
  // All widths, chunks of one unit, slots that fill no chunk; few columns and many.
  const std::vector<GroupShape> wide{{8, 32}, {6, 64}, {5, 32}, {4, 128}, {3, 96}, {2, 160}};
  for (const std::int64_t out : {32, 208, 9024}) {
    const auto matrix = exl2(wide, out);
    for (const bool normalise : {false, true}) expect_same_bits({matrix.get()}, normalise);
  }
  // A longer row than a thread holds at once.
  const auto deep = exl2({{4, 14336}, {5, 3072}}, 64);
  expect_same_bits({deep.get()}, false);
  // Three matrices that gather their input apart.
  const auto q = exl2(wide, 96);
  const auto k = exl2({{4, 512}}, 32);
  const auto v = exl2({{3, 256}, {6, 256}}, 32);
  for (const bool normalise : {false, true}) {
    expect_same_bits({q.get(), k.get(), v.get()}, normalise);
  }
  for (const GptqZeros zeros : {GptqZeros::kConstant, GptqZeros::kBytes, GptqZeros::kWords}) {
    const auto gptq = pack(random_gptq({4, 512, 160, 64, true, zeros}, engine_));
    for (const bool normalise : {false, true}) expect_same_bits({gptq.get()}, normalise);
  }
}

// A hint of what attention reads next changes no bit: wherever its pieces end, in pages that lie
// anywhere, and next to the end of the cache.
TEST_F(CudaTokenProduct, KeysOfAttentionBehindMayBeAskedFor) {
  const auto q = exl2({{4, 256}, {3, 128}}, 32 * 64);
  const TensorView x = rows(1, q->in());
  const auto run = [&](const AttentionArgs* behind) {
    const TensorView out = device_->put(std::vector<float>(32 * 64, 0.0f), {1, 32 * 64});
    const MatmulOutput output{q.get(), out, {}};
    device_->ops().matmul(device_->context(),
                          {.x = x, .outputs = {&output, 1}, .attention_behind = behind});
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

}  // namespace
}  // namespace bl::test
