// Weights generated from a seed on the card equal those that the host generates, bit for bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "backend/cuda/on_cuda_device.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

class CudaSeeded : public OnCudaDevice {
 protected:
  // Packs the matrix once with words from the host, and once with words from the card.
  template <class Matrix>
  void expect_same(Matrix matrix, std::span<const std::uint32_t> Matrix::*words,
                   const PackOptions& options = {}) {
    const SeededValues values{.seed = 77};
    std::vector<std::uint32_t> made((matrix.*words).size());
    make_values(values, reinterpret_cast<std::byte*>(made.data()), made.size() * 4);
    matrix.*words = made;
    const std::vector<float> expected = unpacked(matrix, options);
    const std::vector<std::uint32_t> nothing(made.size());
    matrix.*words = nothing;
    ASSERT_NE(unpacked(matrix, options), expected);
    matrix.seeded = std::make_shared<const SeededValues>(values);
    ASSERT_EQ(unpacked(matrix, options), expected);
  }

  std::vector<float> unpacked(const WeightMatrix& matrix, const PackOptions& options) {
    Backend& backend = device_->backend();
    const Tensor values = backend.unpack(*backend.pack(matrix, options));
    const auto* first = values.view().as<const float>();
    return {first, first + values.view().shape.elements()};
  }

  static std::shared_ptr<const SeededValues> halves(std::uint64_t seed) {
    SeededValues values{.seed = seed, .halves = true};
    for (int i = 0; i < 256; ++i) {
      values.values[i] = float_to_half(static_cast<float>(i - 128) / 64);
    }
    return std::make_shared<const SeededValues>(values);
  }

  Engine engine_{91};
};

TEST_F(CudaSeeded, Exl2Codes) {
  const std::vector<GroupShape> groups{{6, 64}, {5, 96}, {3, 128}, {2, 32}};
  expect_same(random_exl2(groups, 96, engine_), &Exl2Matrix::q_weight);
  expect_same(random_exl2(groups, 96, engine_), &Exl2Matrix::q_weight, {.out = 70});
  // Several slices: more than one lap of loading.
  expect_same(random_exl2({{6, 2048}, {4, 2048}}, 12320, engine_), &Exl2Matrix::q_weight);
}

// Columns in a reader's order, in one slice and in several.
TEST_F(CudaSeeded, Exl2CodesInAnotherOrder) {
  for (const std::int64_t out : {96, 12320}) {
    PackOptions options{.out = out - 32};
    for (std::int32_t i = 0; i < options.out; ++i) options.columns.push_back(i);
    std::shuffle(options.columns.begin(), options.columns.end(), engine_);
    expect_same(random_exl2({{6, 2048}, {4, 2048}}, out, engine_), &Exl2Matrix::q_weight, options);
  }
}

TEST_F(CudaSeeded, GptqCodes) {
  for (const bool act_order : {false, true}) {
    for (const int bits : {3, 4}) {
      expect_same(random_gptq({bits, 256, 200, 64, act_order, GptqZeros::kBytes}, engine_),
                  &GptqMatrix::qweight);
    }
  }
}

// Any number of elements, and a part of the stored rows.
TEST_F(CudaSeeded, PlainMatricesAndTables) {
  const auto seeded = halves(78);
  for (const std::int64_t in : {64, 81}) {
    const std::int64_t out = 129;
    auto stored = std::make_shared<Tensor>(make_host_tensor(DType::kF16, {out, in}));
    const auto bytes = static_cast<std::size_t>(2 * in * out);
    make_values(*seeded, stored->view().as<std::byte>(), bytes);
    DenseMatrix matrix;
    matrix.name = "w";
    matrix.weight = {stored->view(), stored};
    const std::vector<float> expected = unpacked(matrix, {.out = out - 2});
    const auto nothing = std::make_shared<Tensor>(make_host_tensor(DType::kF16, {out, in}));
    matrix.weight = {nothing->view(), nothing, seeded};
    EXPECT_EQ(unpacked(matrix, {.out = out - 2}), expected) << in;

    const Buffer memory = device_->backend().allocate(bytes);
    const TensorView table = view_of(memory.data(), DType::kF16, {out, in});
    device_->backend().make_seeded(table, *seeded);
    const Tensor back = make_host_tensor(DType::kF16, {out, in});
    device_->backend().download(back.view(), table);
    device_->backend().synchronize();
    EXPECT_EQ(std::memcmp(back.view().data, stored->view().data, bytes), 0) << in;
  }
}

}  // namespace
}  // namespace bl::test
