// matmul with plain matrices and the experts op, on every backend, against sums in double.
// Quantized matrices have tests of their own.

#include <gtest/gtest.h>

#include <cmath>

#include "backend/device.h"
#include "tensor/float16.h"

namespace bl::test {
namespace {

// A matrix with its dense form in the file and its values.
struct Dense {
  std::unique_ptr<PackedMatrix> packed;
  std::vector<double> values;  // [in, out]
  std::int64_t in = 0, out = 0;
  std::vector<double> apply(const double* x) const {
    std::vector<double> y(static_cast<std::size_t>(out));
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t c = 0; c < out; ++c) {
        y[static_cast<std::size_t>(c)] += x[i] * values[static_cast<std::size_t>(i * out + c)];
      }
    }
    return y;
  }
};

struct DenseProductShape {
  std::int64_t in, out;
  DType dtype = DType::kF32;
  bool transposed = false;
};

Dense make_dense(Device& device, Random& random, const DenseProductShape& s) {
  Dense dense;
  dense.in = s.in;
  dense.out = s.out;
  const Shape shape = s.transposed ? Shape{s.in, s.out} : Shape{s.out, s.in};
  auto stored = std::make_shared<Tensor>(make_host_tensor(s.dtype, shape));
  const std::vector<float> values =
      random.normal(s.in * s.out, 1.0f / std::sqrt(static_cast<float>(s.in)));
  dense.values.resize(values.size());
  visit_float_dtype(s.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t i = 0; i < s.in; ++i) {
      for (std::int64_t c = 0; c < s.out; ++c) {
        const T value(values[static_cast<std::size_t>(i * s.out + c)]);
        stored->view().as<T>()[s.transposed ? i * s.out + c : c * s.in + i] = value;
        dense.values[static_cast<std::size_t>(i * s.out + c)] =
            static_cast<double>(static_cast<float>(value));
      }
    }
  });
  DenseMatrix matrix;
  matrix.name = "w";
  matrix.weight = {stored->view(), stored};
  matrix.transposed = s.transposed;
  dense.packed = device.backend().pack(matrix, {});
  return dense;
}

class ProductOp : public testing::TestWithParam<std::string> {
 protected:
  Device device_{GetParam()};
  Random random_{21};
  bool cuda() const { return GetParam().starts_with("cuda"); }
  double tolerance() const { return GetParam() == "ref" ? 2e-6 : 1e-5; }
  // Products of many tokens may round the input to the matrix's type.
  double tolerance(std::int64_t tokens, DType dtype) const {
    if (!cuda() || tokens <= 8 || dtype == DType::kF32) return tolerance();
    return dtype == DType::kF16 ? 3e-3 : 2e-2;
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, ProductOp, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

TEST_P(ProductOp, PackingLosesNothing) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const bool transposed : {false, true}) {
      const Dense dense = make_dense(device_, random_, {96, 70, dtype, transposed});
      const Tensor back = device_.backend().unpack(*dense.packed);
      for (std::int64_t i = 0; i < 96 * 70; ++i) {
        ASSERT_EQ(static_cast<double>(back.view().as<float>()[i]),
                  dense.values[static_cast<std::size_t>(i)]);
      }
    }
  }
}

// Large enough that the card reads it once for all tokens.
TEST_P(ProductOp, OutputLayer) {
  if (!cuda()) GTEST_SKIP() << "small shapes are the same there";
  const std::int64_t in = 1024;
  const std::int64_t out = 16400;
  const Dense dense = make_dense(device_, random_, {in, out, DType::kF16});
  for (const std::int64_t tokens : {8, 9, 16, 50}) {
    const std::vector<float> x = random_.normal(tokens * in);
    const TensorView result =
        device_.put(std::vector<float>(static_cast<std::size_t>(tokens * out), NAN), {tokens, out});
    const MatmulOutput output{dense.packed.get(), result, {}};
    device_.ops().matmul(device_.context(),
                         {.x = device_.put(x, {tokens, in}), .outputs = {&output, 1}});
    const std::vector<float> got = device_.get(result);
    for (const std::int64_t t : {std::int64_t{0}, tokens / 2, tokens - 1}) {
      const std::vector<double> row(x.begin() + t * in, x.begin() + (t + 1) * in);
      const std::vector<double> expected = dense.apply(row.data());
      for (std::int64_t c = 0; c < out; ++c) {
        ASSERT_NEAR(got[static_cast<std::size_t>(t * out + c)],
                    expected[static_cast<std::size_t>(c)], tolerance(tokens, DType::kF16) * 4)
            << tokens << " tokens, row " << t << ", column " << c;
      }
    }
  }
}

TEST_P(ProductOp, SeveralOutputsOfOneInput) {
  for (const std::int64_t tokens : {1, 2, 5, 17}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const bool accumulate : {false, true}) {
        const std::int64_t in = 130;
        const Dense a = make_dense(device_, random_, {in, 64, dtype});
        const Dense b = make_dense(device_, random_, {in, 33, dtype, true});
        const std::vector<float> x = random_.normal(tokens * in);
        const std::vector<float> bias = random_.normal(33);
        const std::vector<float> before = random_.normal(tokens * 97);
        const TensorView fused = device_.put(before, {tokens, 97});
        const std::vector<MatmulOutput> outputs{
            {a.packed.get(), slice_columns(fused, 0, 64), {}},
            {b.packed.get(), slice_columns(fused, 64, 33), device_.put(bias, {33})}};
        device_.ops().matmul(device_.context(),
                             {.x = device_.put_strided(x, {tokens, in}, 6),
                              .outputs = outputs,
                              .epilogue = {.multiplier = 0.5f, .accumulate = accumulate}});
        std::vector<double> expected;
        for (std::int64_t t = 0; t < tokens; ++t) {
          const std::vector<double> row(x.begin() + t * in, x.begin() + (t + 1) * in);
          for (const double y : a.apply(row.data())) expected.push_back(0.5 * y);
          const std::vector<double> y = b.apply(row.data());
          for (std::size_t c = 0; c < 33; ++c) {
            expected.push_back(0.5 * y[c] + static_cast<double>(bias[c]));
          }
        }
        for (std::size_t i = 0; i < expected.size() && accumulate; ++i) {
          expected[i] += static_cast<double>(before[i]);
        }
        EXPECT_LE(worst_difference(device_.get(fused), expected), tolerance(tokens, dtype))
            << tokens << " tokens, " << name_of(dtype);
      }
    }
  }
}

struct ExpertCase {
  const char* name;
  bool gated = true;
  bool fused = false;
  bool biased = false;
  bool on_input = false;
};

TEST_P(ProductOp, ExpertsWeighAndAdd) {
  const std::int64_t hidden = 64;
  const std::int64_t width = 40;
  const std::int64_t tokens = 7;
  const int count = 5;
  const int k = 2;
  for (const ExpertCase& c :
       {ExpertCase{"gated"}, ExpertCase{"plain", false}, ExpertCase{"fused", true, true},
        ExpertCase{"biased", true, false, true}, ExpertCase{"fused_biased", true, true, true},
        ExpertCase{"on_input", true, false, false, true}}) {
    std::vector<Dense> gates, ups, downs;
    std::vector<ExpertWeights> all(count);
    std::vector<std::vector<float>> gate_bias, up_bias, down_bias;
    const std::int64_t up_width = c.fused ? 2 * width : width;
    for (int e = 0; e < count; ++e) {
      gates.push_back(make_dense(device_, random_, {hidden, width}));
      ups.push_back(make_dense(device_, random_, {hidden, up_width}));
      downs.push_back(make_dense(device_, random_, {width, hidden}));
      gate_bias.push_back(random_.normal(width));
      up_bias.push_back(random_.normal(up_width));
      down_bias.push_back(random_.normal(hidden));
    }
    for (std::size_t e = 0; e < all.size(); ++e) {
      if (c.gated && !c.fused) all[e].gate = gates[e].packed.get();
      all[e].up = ups[e].packed.get();
      all[e].down = downs[e].packed.get();
      if (!c.biased) continue;
      if (c.gated && !c.fused) all[e].gate_bias = device_.put(gate_bias[e], {width});
      all[e].up_bias = device_.put(up_bias[e], {up_width});
      all[e].down_bias = device_.put(down_bias[e], {hidden});
    }
    const std::vector<float> x = random_.normal(tokens * hidden);
    const std::vector<float> before = random_.normal(tokens * hidden);
    const std::vector<float> weights = random_.normal(tokens * k);
    std::vector<std::int32_t> chosen;
    for (std::int64_t t = 0; t < tokens; ++t) {
      chosen.push_back(random_.below(count));
      chosen.push_back((chosen.back() + 1 + random_.below(count - 1)) % count);
    }
    const TensorView out = device_.put(before, {tokens, hidden});
    const auto packed = device_.backend().pack_experts(all);
    device_.ops().experts(device_.context(), {.x = device_.put(x, {tokens, hidden}),
                                              .all = all,
                                              .packed = packed.get(),
                                              .experts = device_.put(chosen),
                                              .weights = device_.put(weights, {tokens, k}),
                                              .k = k,
                                              .fused_gate_up = c.fused,
                                              .weights_on_input = c.on_input,
                                              .intermediate = width,
                                              .activation = ActivateArgs{},
                                              .out = out});
    std::vector<double> expected(before.begin(), before.end());
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
      for (std::size_t j = 0; j < static_cast<std::size_t>(k); ++j) {
        const auto e = static_cast<std::size_t>(chosen[t * k + j]);
        const double w = static_cast<double>(weights[t * k + j]);
        std::vector<double> row(x.begin() + static_cast<long>(t) * hidden,
                                x.begin() + static_cast<long>(t + 1) * hidden);
        if (c.on_input) {
          for (double& value : row) value *= w;
        }
        std::vector<double> up = ups[e].apply(row.data());
        std::vector<double> gate = gates[e].apply(row.data());
        for (std::size_t i = 0; i < up.size() && c.biased; ++i)
          up[i] += static_cast<double>(up_bias[e][i]);
        for (std::size_t i = 0; i < gate.size() && c.biased; ++i) {
          gate[i] += static_cast<double>(gate_bias[e][i]);
        }
        if (c.fused) {
          gate.assign(up.begin(), up.begin() + width);
          up.erase(up.begin(), up.begin() + width);
        }
        std::vector<double> inner;
        for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
          const double g = c.gated ? gate[i] : up[i];
          inner.push_back(g / (1.0 + std::exp(-g)) * (c.gated ? up[i] : 1.0));
        }
        const std::vector<double> y = downs[e].apply(inner.data());
        for (std::size_t i = 0; i < y.size(); ++i) {
          const double value = y[i] + (c.biased ? static_cast<double>(down_bias[e][i]) : 0.0);
          expected[t * static_cast<std::size_t>(hidden) + i] += c.on_input ? value : w * value;
        }
      }
    }
    EXPECT_LE(worst_difference(device_.get(out), expected), tolerance()) << c.name;
  }
}

TEST_P(ProductOp, TheTableIsComplete) {
  const OpTable& ops = device_.ops();
  EXPECT_TRUE(ops.embed && ops.norm && ops.activate && ops.add && ops.scale && ops.gate &&
              ops.clamp && ops.copy_rows && ops.add_rows && ops.matmul && ops.route &&
              ops.experts && ops.rope && ops.kv_write && ops.attention);
}

}  // namespace
}  // namespace bl::test
