// Packing and multiplication of the CPU backend, on every instruction set of this machine, against
// sums in double over the matrices that format/ dequantizes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "format/bit_codec.h"
#include "format/dequantize.h"
#include "format/exl2_scale.h"
#include "support/random_matrix.h"
#include "tensor/float16.h"

namespace bl::test {
namespace {

// Rounding of activations: 2^-14 of the largest of their segment.
constexpr double kTolerance = 2e-4;

std::vector<float> exact_values(const WeightMatrix& matrix) {
  const std::int64_t in = in_features(matrix);
  const std::int64_t out = out_features(matrix);
  std::vector<float> values(static_cast<std::size_t>(in * out));
  if (const auto* dense = std::get_if<DenseMatrix>(&matrix)) {
    const TensorView& view = dense->weight.view;
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t c = 0; c < out; ++c) {
        const std::int64_t at = dense->transposed ? i * out + c : c * in + i;
        float& value = values[static_cast<std::size_t>(i * out + c)];
        const std::byte* from =
            view.as<std::byte>() + at * static_cast<std::int64_t>(size_of(view.dtype));
        if (view.dtype == DType::kF32) {
          std::memcpy(&value, from, 4);
          continue;
        }
        BFloat16 wide;
        std::memcpy(&wide.bits, from, 2);
        value = view.dtype == DType::kF16 ? half_to_float(wide.bits) : static_cast<float>(wide);
      }
    }
    return values;
  }
  const std::vector<std::uint16_t> halves = dequantize_to_half(matrix);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = half_to_float(halves[i]);
  return values;
}

// Without the rounding of each product to binary16: what kernels that scale sums compute.
std::vector<double> unrounded_values(const WeightMatrix& matrix) {
  std::vector<double> values(static_cast<std::size_t>(in_features(matrix) * out_features(matrix)));
  if (const auto* exl2 = std::get_if<Exl2Matrix>(&matrix)) {
    for (std::size_t g = 0; g < exl2->groups.size(); ++g) {
      const Exl2Matrix::Group& group = exl2->groups[g];
      const float group_scale = exl2_group_scale(exl2->q_scale_max[g]);
      const std::uint32_t* scales =
          exl2->q_scale.data() + static_cast<std::int64_t>(g) * exl2->out / 8;
      const std::uint32_t* words = exl2->q_weight.data() + group.first_word * exl2->out;
      for (std::int32_t r = 0; r < group.slots; ++r) {
        const std::int64_t channel = exl2->perm[static_cast<std::size_t>(group.first_slot + r)];
        for (std::int64_t c = 0; c < exl2->out; ++c) {
          const auto code = static_cast<int>(read_code(words + c, exl2->out, r, group.bits));
          const float scale = exl2_column_scale(group_scale, exl2_scale_code(scales, c));
          values[static_cast<std::size_t>(channel * exl2->out + c)] =
              double(code - exl2_center(group.bits)) * double{scale};
        }
      }
    }
    return values;
  }
  if (const auto* gptq = std::get_if<GptqMatrix>(&matrix)) {
    for (std::int64_t i = 0; i < gptq->in; ++i) {
      for (std::int64_t c = 0; c < gptq->out; ++c) {
        const auto at =
            static_cast<std::size_t>(gptq->group_of[static_cast<std::size_t>(i)] * gptq->out + c);
        const auto code =
            static_cast<int>(read_code(gptq->qweight.data() + c, gptq->out, i, gptq->bits));
        values[static_cast<std::size_t>(i * gptq->out + c)] =
            double(code - gptq->zeros[at]) * double{half_to_float(gptq->scales[at])};
      }
    }
    return values;
  }
  const std::vector<float> exact = exact_values(matrix);
  return {exact.begin(), exact.end()};
}

struct Case {
  std::string name;
  WeightMatrix matrix;
};

std::vector<GroupShape> equal_groups(int bits, std::int32_t slots, int count) {
  return std::vector<GroupShape>(static_cast<std::size_t>(count), GroupShape{bits, slots});
}

std::vector<Case> make_cases() {
  Engine random(1);
  std::vector<Case> cases;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    cases.push_back(
        {"exl2 " + std::to_string(bits), random_exl2(equal_groups(bits, 32, 3), 96, random)});
  }
  cases.push_back(
      {"exl2 all widths",
       random_exl2({{8, 128}, {6, 64}, {5, 32}, {4, 128}, {3, 64}, {2, 96}}, 160, random)});
  cases.push_back({"exl2 rising widths", random_exl2({{2, 32}, {8, 32}, {3, 32}}, 32, random)});
  cases.push_back({"exl2 long groups", random_exl2({{8, 1024}, {4, 288}}, 64, random)});
  cases.push_back({"exl2 one run", random_exl2({{5, 32}}, 32, random)});
  for (const int bits : {2, 3, 4, 8}) {
    for (const GptqZeros zeros : {GptqZeros::kConstant, GptqZeros::kBytes, GptqZeros::kWords}) {
      cases.push_back(
          {"gptq " + std::to_string(bits) + " zeros " + std::to_string(static_cast<int>(zeros)),
           random_gptq({.bits = bits, .in = 192, .out = 96, .zeros = zeros}, random)});
    }
  }
  cases.push_back(
      {"gptq act-order",
       random_gptq({.in = 256, .out = 64, .group_size = 32, .act_order = true}, random)});
  cases.push_back(
      {"gptq odd sizes",
       random_gptq({.in = 416, .out = 40, .group_size = 100, .act_order = true}, random)});
  cases.push_back(
      {"gptq one group", random_gptq({.in = 800, .out = 72, .group_size = 800}, random)});
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::string name(name_of(dtype));
    cases.push_back({name, random_dense({.dtype = dtype, .in = 128, .out = 96}, random)});
    cases.push_back({name + " odd", random_dense({.dtype = dtype, .in = 83, .out = 37}, random)});
    cases.push_back(
        {name + " transposed",
         random_dense({.dtype = dtype, .in = 70, .out = 130, .transposed = true}, random)});
    cases.push_back(
        {name + " unaligned",
         random_dense({.dtype = dtype, .in = 65, .out = 9, .odd_address = true}, random)});
    cases.push_back({name + " tiny", random_dense({.dtype = dtype, .in = 3, .out = 1}, random)});
  }
  return cases;
}

// Owns what an op call needs.
struct Runner {
  explicit Runner(Backend& backend, std::int64_t tokens, std::int64_t in)
      : scratch(backend.allocate(backend.scratch_bytes({.tokens = tokens, .max_in = in}))) {
    ctx = backend.context(scratch);
  }
  Arena scratch;
  ExecContext ctx;
};

TensorView matrix_view(std::vector<float>& values, std::int64_t rows) {
  return view_of(values.data(), {rows, static_cast<std::int64_t>(values.size()) / rows});
}

std::vector<float> multiply(Backend& backend, const PackedMatrix& weight, std::vector<float> x,
                            std::int64_t rows) {
  Runner runner(backend, rows, weight.in());
  std::vector<float> out(static_cast<std::size_t>(rows * weight.out()), -1.0f);
  const MatmulOutput output{&weight, matrix_view(out, rows), {}};
  backend.ops().matmul(runner.ctx, {.x = matrix_view(x, rows), .outputs = {&output, 1}});
  return out;
}

// Largest error, relative to what rounding each activation by itself would give.
void expect_product(const std::vector<double>& values, const std::vector<float>& x,
                    const std::vector<float>& got, std::int64_t rows) {
  const std::size_t in = x.size() / static_cast<std::size_t>(rows);
  const std::size_t out = got.size() / static_cast<std::size_t>(rows);
  const std::size_t stored = values.size() / in;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    double largest = 0;
    for (std::size_t i = 0; i < in; ++i)
      largest = std::max(largest, std::fabs(double{x[r * in + i]}));
    for (std::size_t c = 0; c < out; ++c) {
      double sum = 0;
      double squares = 0;
      for (std::size_t i = 0; i < in; ++i) {
        const double w = values[i * stored + c];
        sum += w * double{x[r * in + i]};
        squares += w * w;
      }
      ASSERT_NEAR(got[r * out + c], sum, kTolerance * largest * std::sqrt(squares) + 1e-12)
          << "row " << r << " column " << c;
    }
  }
}

class MatmulTest : public testing::TestWithParam<cpu::Isa> {};

TEST_P(MatmulTest, UnpackedEqualsDequantizedToTheBit) {
  CpuBackend backend(2, GetParam());
  for (const Case& c : make_cases()) {
    SCOPED_TRACE(c.name);
    const auto packed = backend.pack(c.matrix, {});
    const Tensor back = backend.unpack(*packed);
    const std::vector<float> expected = exact_values(c.matrix);
    ASSERT_EQ(back.view().shape.elements(), static_cast<std::int64_t>(expected.size()));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(back.view().as<float>()[i], expected[i]) << "element " << i;
    }
  }
}

TEST_P(MatmulTest, EqualsSumsInDouble) {
  CpuBackend backend(2, GetParam());
  Engine random(2);
  for (const Case& c : make_cases()) {
    const auto packed = backend.pack(c.matrix, {});
    const std::vector<double> values = unrounded_values(c.matrix);
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 13, 16, 70, 130}) {
      SCOPED_TRACE(c.name + ", rows " + std::to_string(rows));
      const auto x = random_floats(static_cast<std::size_t>(rows * packed->in()), random);
      expect_product(values, x, multiply(backend, *packed, x, rows), rows);
    }
  }
}

TEST_P(MatmulTest, RowsDependNeitherOnTheBatchNorOnThreads) {
  Engine random(3);
  for (const Case& c : make_cases()) {
    SCOPED_TRACE(c.name);
    const std::int64_t rows = 101;
    const std::int64_t in = in_features(c.matrix);
    const auto x = random_floats(static_cast<std::size_t>(rows * in), random);
    std::vector<float> first;
    for (const int threads : {1, 2, 3, 4}) {
      CpuBackend backend(threads, GetParam());
      const auto packed = backend.pack(c.matrix, {});
      const auto all = multiply(backend, *packed, x, rows);
      if (first.empty()) first = all;
      ASSERT_EQ(all, first) << threads << " threads";
      for (const std::int64_t row : {0, 3, 57, 100}) {
        const auto begin = x.begin() + row * in;
        const auto single = multiply(backend, *packed, std::vector<float>(begin, begin + in), 1);
        const auto expected = first.begin() + row * packed->out();
        ASSERT_TRUE(std::equal(single.begin(), single.end(), expected)) << "row " << row;
      }
    }
  }
}

TEST_P(MatmulTest, EqualsTheWidestInstructionSetToTheBit) {
  if (GetParam() == cpu::Isa::kPortable) GTEST_SKIP() << "rounds products, having no FMA";
  Engine random(4);
  for (const Case& c : make_cases()) {
    SCOPED_TRACE(c.name);
    CpuBackend backend(1, GetParam());
    CpuBackend widest(1);
    const auto x = random_floats(static_cast<std::size_t>(7 * in_features(c.matrix)), random);
    EXPECT_EQ(multiply(backend, *backend.pack(c.matrix, {}), x, 7),
              multiply(widest, *widest.pack(c.matrix, {}), x, 7));
  }
}

TEST_P(MatmulTest, CutsPaddingColumns) {
  CpuBackend backend(2, GetParam());
  Engine random(5);
  for (const Case& c : make_cases()) {
    const std::int64_t stored = out_features(c.matrix);
    if (stored < 20) continue;
    SCOPED_TRACE(c.name);
    const auto cut = backend.pack(c.matrix, {.out = stored - 13});
    const auto whole = backend.pack(c.matrix, {});
    EXPECT_EQ(cut->out(), stored - 13);
    const auto x = random_floats(static_cast<std::size_t>(3 * cut->in()), random);
    const auto expected = multiply(backend, *whole, x, 3);
    const auto got = multiply(backend, *cut, x, 3);
    for (std::int64_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(std::equal(got.begin() + r * cut->out(), got.begin() + (r + 1) * cut->out(),
                             expected.begin() + r * stored));
    }
  }
}

TEST_P(MatmulTest, SeveralOutputsBiasMultiplierAccumulateAndStrides) {
  CpuBackend backend(3, GetParam());
  Engine random(6);
  const Exl2Matrix shared = random_exl2({{6, 32}, {4, 64}}, 64, random);
  Exl2Matrix twin = random_exl2({{5, 32}, {3, 64}}, 32, random);
  twin.perm = shared.perm;
  const std::vector<WeightMatrix> matrices{
      shared, twin, random_exl2({{4, 96}}, 96, random),
      random_gptq({.in = 96, .out = 40, .group_size = 32}, random),
      random_dense({.in = 96, .out = 50}, random)};
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  for (const WeightMatrix& matrix : matrices) packed.push_back(backend.pack(matrix, {}));
  for (const std::int64_t rows : {1, 9, 70, 1100}) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(rows);
      // x and the outputs are slices of wider buffers.
      std::vector<float> wide_x = random_floats(static_cast<std::size_t>(rows * 130), random);
      const TensorView x = slice_columns(matrix_view(wide_x, rows), 20, 96);
      std::vector<float> fused(static_cast<std::size_t>(rows * 300), 0.5f);
      std::vector<std::vector<float>> biases;
      std::vector<MatmulOutput> outputs;
      std::int64_t column = 3;
      for (const auto& weight : packed) {
        biases.push_back(random_floats(static_cast<std::size_t>(weight->out()), random));
        outputs.push_back({weight.get(),
                           slice_columns(matrix_view(fused, rows), column, weight->out()),
                           view_of(biases.back().data(), {weight->out()})});
        column += weight->out();
      }
      Runner runner(backend, rows, 96);
      backend.ops().matmul(runner.ctx,
                           {.x = x,
                            .outputs = outputs,
                            .epilogue = {.multiplier = 0.75f, .accumulate = accumulate}});
      std::vector<float> dense_x;
      for (std::int64_t r = 0; r < rows; ++r) {
        dense_x.insert(dense_x.end(), x.row<float>(r), x.row<float>(r) + 96);
      }
      for (std::size_t m = 0; m < packed.size(); ++m) {
        const auto product = multiply(backend, *packed[m], dense_x, rows);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < packed[m]->out(); ++c) {
            const float p = product[static_cast<std::size_t>(r * packed[m]->out() + c)];
            const float expected =
                p * 0.75f + biases[m][static_cast<std::size_t>(c)] + (accumulate ? 0.5f : 0.0f);
            ASSERT_NEAR(outputs[m].out.row<float>(r)[c], expected,
                        1e-5f * (1.0f + std::fabs(expected)));
          }
        }
      }
      for (std::int64_t r = 0; r < rows; ++r) {  // nothing is written beside the slices
        const float* row = fused.data() + r * 300;
        ASSERT_EQ(row[2], 0.5f);
        ASSERT_EQ(row[column], 0.5f);
      }
    }
  }
}

TEST_P(MatmulTest, ZerosAndExtremeActivations) {
  CpuBackend backend(1, GetParam());
  Engine random(7);
  const WeightMatrix matrix = random_exl2({{8, 256}, {2, 32}}, 32, random);
  const auto packed = backend.pack(matrix, {});
  const std::vector<double> values = unrounded_values(matrix);
  for (const std::int64_t rows : {1, 9}) {
    std::vector<float> x(static_cast<std::size_t>(rows * packed->in()), 0.0f);
    for (const float y : multiply(backend, *packed, x, rows)) EXPECT_EQ(y, 0.0f);
    for (const float scale : {1e-20f, 1e-4f, 3e4f, 1e20f}) {
      std::fill(x.begin(), x.end(), scale);  // every product at its largest
      expect_product(values, x, multiply(backend, *packed, x, rows), rows);
      for (float& v : x) v = -v;
      expect_product(values, x, multiply(backend, *packed, x, rows), rows);
    }
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      std::fill(x.begin(), x.end(), 1.0f);
      x[5] = bad;
      const auto y = multiply(backend, *packed, x, rows);
      for (std::size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(std::isfinite(y[i]), i >= static_cast<std::size_t>(packed->out())) << i;
      }
    }
  }
}

TEST_P(MatmulTest, HoldsAboutWhatTheFileHolds) {
  CpuBackend backend(2, GetParam());
  Engine random(8);
  std::vector<GroupShape> groups{{6, 32}, {6, 32}};
  groups.resize(18, GroupShape{4, 32});
  const WeightMatrix exl2 = random_exl2(groups, 1536, random);
  const auto packed = backend.pack(exl2, {});
  EXPECT_LE(static_cast<double>(packed->bytes()), 1.02 * static_cast<double>(stored_bytes(exl2)));
  EXPECT_EQ(packed->bytes(), backend.packed_bytes(exl2, {}));
  const WeightMatrix gptq = random_gptq(
      {.in = 4096, .out = 512, .group_size = 128, .act_order = true, .zeros = GptqZeros::kBytes},
      random);
  const auto packed_gptq = backend.pack(gptq, {});
  EXPECT_LE(static_cast<double>(packed_gptq->bytes()),
            1.02 * static_cast<double>(stored_bytes(gptq)));
  EXPECT_EQ(packed_gptq->bytes(), backend.packed_bytes(gptq, {}));
}

INSTANTIATE_TEST_SUITE_P(Isas, MatmulTest, testing::ValuesIn(cpu::available_isas()),
                         [](const auto& info) {
                           return "isa" + std::to_string(static_cast<int>(info.param));
                         });

}  // namespace
}  // namespace bl::test
