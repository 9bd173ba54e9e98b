// The experts op on every backend against sums in double over the exact weights: plain and
// quantized experts, few and many tokens, even and uneven choices.

#include <gtest/gtest.h>

#include <cmath>

#include "backend/device.h"
#include "support/expert_activation.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

enum class Kind { kF32, kF16, kBF16, kExl2, kExl2OneGather, kGptq, kGptqInOrder, kMixed };

struct Case {
  const char* name;
  Kind kind = Kind::kF32;
  std::int64_t tokens = 1;
  int experts = 4;
  int k = 2;
  bool gated = true;
  bool fused = false;
  bool biased = false;
  bool on_input = false;
  bool crowded = false;  // all tokens choose the same experts
  Activation activation = Activation::kSilu;
};

constexpr std::int64_t kHidden = 160;
constexpr std::int64_t kWidth = 96;

// A matrix on the backend, with its values.
struct Matrix {
  std::unique_ptr<PackedMatrix> packed;
  std::vector<float> values;  // [in, out]
  std::vector<float> bias;    // [out] or empty
  TensorView device_bias;

  std::vector<double> apply(const std::vector<double>& x) const {
    const std::size_t out = values.size() / x.size();
    std::vector<double> y(out, 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t c = 0; c < out; ++c) {
        y[c] += x[i] * static_cast<double>(values[i * out + c]);
      }
    }
    for (std::size_t c = 0; c < bias.size(); ++c) y[c] += static_cast<double>(bias[c]);
    return y;
  }
};

struct Expert {
  Matrix gate, up, down;  // gate without a matrix where it has none
};

ExpertWeights weights_of(const Expert& e) {
  return {.gate = e.gate.packed.get(),
          .up = e.up.packed.get(),
          .down = e.down.packed.get(),
          .gate_bias = e.gate.device_bias,
          .up_bias = e.up.device_bias,
          .down_bias = e.down.device_bias};
}

class Experts : public testing::TestWithParam<std::string> {
 protected:
  WeightMatrix random_matrix(Kind kind, std::int64_t in, std::int64_t out) {
    switch (kind) {
      case Kind::kExl2:
      case Kind::kExl2OneGather:
        return random_exl2({{5, 32}, {4, static_cast<std::int32_t>(in - 64)}, {3, 32}}, out,
                           engine_);
      case Kind::kGptq:
        return random_gptq({4, in, out, 32, true, GptqZeros::kBytes}, engine_);
      case Kind::kGptqInOrder:
        return random_gptq({4, in, out, 32, false, GptqZeros::kBytes}, engine_);
      case Kind::kF16:
        return random_dense({.dtype = DType::kF16, .in = in, .out = out}, engine_);
      case Kind::kBF16:
        return random_dense({.dtype = DType::kBF16, .in = in, .out = out}, engine_);
      default:
        return random_dense({.dtype = DType::kF32, .in = in, .out = out}, engine_);
    }
  }

  Matrix put(const WeightMatrix& matrix, bool biased) {
    Matrix result;
    result.packed = device_.backend().pack(matrix, {});
    const Tensor values = ref_.backend().unpack(*ref_.backend().pack(matrix, {}));
    const auto* first = values.view().as<const float>();
    result.values.assign(first, first + values.view().shape.elements());
    if (biased) {
      result.bias = random_.normal(out_features(matrix), 0.1f);
      result.device_bias = device_.put(result.bias, {out_features(matrix)});
    }
    return result;
  }

  Expert make_expert(const Case& c, int index) {
    const auto kind = [&](int role) {
      if (c.kind != Kind::kMixed) return c.kind;
      constexpr Kind kKinds[] = {Kind::kExl2, Kind::kF16, Kind::kGptq, Kind::kBF16};
      return kKinds[(index + role) % 4];
    };
    Expert expert;
    WeightMatrix up = random_matrix(kind(1), kHidden, c.fused ? 2 * kWidth : kWidth);
    if (c.gated && !c.fused) {
      const WeightMatrix gate = random_matrix(kind(0), kHidden, kWidth);
      if (c.kind == Kind::kExl2OneGather) {
        std::get<Exl2Matrix>(up).perm = std::get<Exl2Matrix>(gate).perm;
      }
      expert.gate = put(gate, c.biased);
    }
    expert.up = put(up, c.biased);
    expert.down = put(random_matrix(kind(2), kWidth, kHidden), c.biased);
    return expert;
  }

  std::vector<double> apply(const Case& c, const Expert& expert, const std::vector<double>& x) {
    std::vector<double> up = expert.up.apply(x);
    std::vector<double> gate = c.gated && !c.fused ? expert.gate.apply(x) : up;
    if (c.fused) up.erase(up.begin(), up.begin() + kWidth);
    std::vector<double> hidden;
    for (std::size_t i = 0; i < static_cast<std::size_t>(kWidth); ++i) {
      hidden.push_back(activated(c.activation, gate[i], up[i], c.gated));
    }
    return expert.down.apply(hidden);
  }

  // Runs the op over rows [first, first + count) of a call's input; returns the result.
  struct Call {
    std::span<const ExpertWeights> all;
    const PackedExperts* packed = nullptr;
    TensorView x;
    TensorView weights;
    const std::int32_t* chosen = nullptr;
    int k = 0;
  };
  std::vector<float> run(ExecContext& ctx, const Call& call, std::int64_t first,
                         std::int64_t count) {
    const TensorView out = device_.put(
        std::vector<float>(static_cast<std::size_t>(count * kHidden)), {count, kHidden});
    device_.ops().experts(ctx, {.x = slice_rows(call.x, first, count),
                                .all = call.all,
                                .packed = call.packed,
                                .experts = call.chosen + first * call.k,
                                .weights = slice_rows(call.weights, first, count),
                                .k = call.k,
                                .intermediate = kWidth,
                                .activation = ActivateArgs{},
                                .out = out});
    return device_.get(out);
  }

  // k different experts of each token.
  std::vector<std::int32_t> choose(const Case& c) {
    std::vector<std::int32_t> chosen;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      const int first = c.crowded ? 1 : random_.below(c.experts);
      const int step = c.crowded ? 1 : 1 + random_.below(std::max(1, (c.experts - 1) / c.k));
      for (int j = 0; j < c.k; ++j) chosen.push_back((first + j * step) % c.experts);
    }
    return chosen;
  }

  struct MadeExperts {
    std::vector<Expert> experts;
    std::vector<ExpertWeights> all;
    std::unique_ptr<PackedExperts> packed;
  };
  MadeExperts make_experts(const Case& c) {
    MadeExperts made;
    for (int e = 0; e < c.experts; ++e) made.experts.push_back(make_expert(c, e));
    for (const Expert& expert : made.experts) made.all.push_back(weights_of(expert));
    made.packed = device_.backend().pack_experts(made.all);
    return made;
  }
  Call made_call(const Case& c, const MadeExperts& made) {
    return {.all = made.all,
            .packed = made.packed.get(),
            .x = device_.put(random_.normal(c.tokens * kHidden), {c.tokens, kHidden}),
            .weights = device_.put(random_.normal(c.tokens * c.k), {c.tokens, c.k}),
            .chosen = device_.put(choose(c)),
            .k = c.k};
  }

  // Of the largest sum.
  double tolerance(Kind kind) const {
    const bool plain = kind == Kind::kF32 || kind == Kind::kF16 || kind == Kind::kBF16;
    if (GetParam() == "ref" || plain) return 2e-5;
    return 4e-3;
  }

  void check(const Case& c);

  Device device_{GetParam()};
  Device ref_{"ref"};
  Random random_{41};
  Engine engine_{42};
};

void Experts::check(const Case& c) {
  std::vector<Expert> experts;
  std::vector<ExpertWeights> all;
  for (int e = 0; e < c.experts; ++e) experts.push_back(make_expert(c, e));
  for (const Expert& expert : experts) all.push_back(weights_of(expert));
  const auto packed = device_.backend().pack_experts(all);
  const std::vector<float> x = random_.normal(c.tokens * kHidden);
  const std::vector<float> before = random_.normal(c.tokens * kHidden, 0.1f);
  const std::vector<float> weights = random_.normal(c.tokens * c.k);
  const std::vector<std::int32_t> chosen = choose(c);
  const TensorView out = device_.put_strided(before, {c.tokens, kHidden}, 4);
  ActivateArgs activation;
  activation.kind = c.activation;
  activation.limit = c.activation == Activation::kSwigluOai ? 0.5f : 0.0f;
  device_.ops().experts(device_.context(),
                        {.x = device_.put_strided(x, {c.tokens, kHidden}, 8),
                         .all = all,
                         .packed = packed.get(),
                         .experts = device_.put(chosen),
                         .weights = device_.put_strided(weights, {c.tokens, c.k}, 1),
                         .k = c.k,
                         .fused_gate_up = c.fused,
                         .weights_on_input = c.on_input,
                         .intermediate = kWidth,
                         .activation = activation,
                         .out = out});
  const std::vector<float> got = device_.get(out);
  double worst = 0.0;
  double scale = 0.0;
  for (std::size_t t = 0; t < static_cast<std::size_t>(c.tokens); ++t) {
    std::vector<double> sum(static_cast<std::size_t>(kHidden), 0.0);
    for (std::size_t j = 0; j < static_cast<std::size_t>(c.k); ++j) {
      const std::size_t choice = t * static_cast<std::size_t>(c.k) + j;
      const double w = static_cast<double>(weights[choice]);
      std::vector<double> row(x.begin() + static_cast<long>(t) * kHidden,
                              x.begin() + static_cast<long>(t + 1) * kHidden);
      for (double& value : row) value *= c.on_input ? w : 1.0;
      const auto& expert = experts[static_cast<std::size_t>(chosen[choice])];
      const std::vector<double> y = apply(c, expert, row);
      for (std::size_t i = 0; i < y.size(); ++i) sum[i] += c.on_input ? y[i] : w * y[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const std::size_t at = t * sum.size() + i;
      const double difference =
          std::fabs(static_cast<double>(got[at]) - (static_cast<double>(before[at]) + sum[i]));
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
      scale = std::max(scale, std::fabs(sum[i]));
    }
  }
  EXPECT_GT(scale, 0.0) << c.name;
  // `out` itself is rounded to F32.
  EXPECT_LE(worst, tolerance(c.kind) * scale + 1e-6) << c.name;
}

INSTANTIATE_TEST_SUITE_P(Backends, Experts, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

TEST_P(Experts, Plain) {
  for (const Case& c : std::vector<Case>{
           {.name = "f32, one token", .tokens = 1, .experts = 60, .k = 8},
           {.name = "f16", .kind = Kind::kF16, .tokens = 3, .experts = 8, .k = 2},
           {.name = "bf16, many tokens", .kind = Kind::kBF16, .tokens = 70, .experts = 16, .k = 4},
           {.name = "f16, large blocks", .kind = Kind::kF16, .tokens = 70, .experts = 4, .k = 3},
           {.name = "bf16, fused and biased",
           .kind = Kind::kBF16,
           .tokens = 17,
           .fused = true,
           .biased = true,
           .activation = Activation::kSwigluOai},
           {.name = "f16, not gated, weights on the input",
           .kind = Kind::kF16,
           .tokens = 17,
           .k = 1,
           .gated = false,
           .biased = true,
           .on_input = true,
           .activation = Activation::kRelu2}}) {
    check(c);
  }
}

TEST_P(Experts, Quantized) {
  for (const Kind kind : {Kind::kExl2, Kind::kExl2OneGather, Kind::kGptq}) {
    for (const Case& c : std::vector<Case>{
             {.name = "one token", .tokens = 1, .experts = 20, .k = 8},
             {.name = "one token, one expert", .tokens = 1, .experts = 4, .k = 1, .biased = true},
             {.name = "one token, fused", .tokens = 1, .fused = true, .biased = true},
             {.name = "one token, not gated", .tokens = 1, .gated = false},
             {.name = "one token, weights on its row", .tokens = 1, .on_input = true},
             {.name = "three tokens", .tokens = 3, .experts = 8, .k = 2, .on_input = true},
             {.name = "17 tokens", .tokens = 17, .experts = 20, .k = 4},
             {.name = "70 tokens", .tokens = 70, .experts = 20, .k = 8},
             {.name = "70 tokens, few experts", .tokens = 70, .experts = 4, .k = 2, .biased = true},
             {.name = "crowded", .tokens = 17, .experts = 20, .k = 2, .crowded = true},
             {.name = "fused", .tokens = 17, .fused = true, .biased = true},
             {.name = "not gated", .tokens = 3, .gated = false},
             {.name = "limited", .tokens = 3, .activation = Activation::kSwigluOai}}) {
      Case quantized = c;
      quantized.kind = kind;
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind));
      check(quantized);
    }
  }
}

// Matrices of one layer, and of one expert, need not be of one format.
TEST_P(Experts, Mixed) {
  for (const std::int64_t tokens : {1, 17, 70}) {
    check({.name = "mixed", .kind = Kind::kMixed, .tokens = tokens, .experts = 8, .biased = true});
  }
}

// Experts with many rows go through other kernels on some cards: one row tile an expert and
// several, activations in the epilogue and behind it, all tokens to the same experts and most
// experts idle.
TEST_P(Experts, ManyRows) {
  for (const Kind kind : {Kind::kExl2, Kind::kExl2OneGather, Kind::kGptq, Kind::kGptqInOrder}) {
    for (const Case& c : std::vector<Case>{
             {.name = "one tile an expert", .tokens = 130, .experts = 4, .k = 2},
             {.name = "several tiles", .tokens = 700, .experts = 3, .k = 2},
             {.name = "2,048 tokens", .tokens = 2048, .experts = 8, .k = 2},
             {.name = "two busy experts of 32",
             .tokens = 600,
             .experts = 32,
             .k = 2,
             .crowded = true},
             {.name = "biased and limited",
             .tokens = 200,
             .experts = 4,
             .k = 2,
             .biased = true,
             .activation = Activation::kSwigluOai},
             {.name = "fused", .tokens = 200, .experts = 4, .k = 3, .fused = true, .biased = true},
             {.name = "not gated", .tokens = 200, .experts = 4, .k = 1, .gated = false},
             {.name = "weights on the input",
             .tokens = 200,
             .experts = 4,
             .k = 2,
             .on_input = true}}) {
      Case many = c;
      many.kind = kind;
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind));
      check(many);
    }
  }
}

TEST_P(Experts, ManyRowsRepeatToTheBit) {
  const Case c{
      .name = "repeats", .kind = Kind::kExl2OneGather, .tokens = 600, .experts = 8, .k = 3};
  const MadeExperts made = make_experts(c);
  const Call call = made_call(c, made);
  const std::vector<float> first = run(device_.context(), call, 0, c.tokens);
  EXPECT_EQ(first, run(device_.context(), call, 0, c.tokens));
}

// A row's result is the same to the bit whatever else is in the batch.
TEST_P(Experts, RowsDoNotDependOnTheBatch) {
  if (!GetParam().starts_with("cuda")) GTEST_SKIP() << "other backends choose kernels by the batch";
  ExecContext ctx = device_.context();
  ctx.deterministic = true;
  for (const Kind kind : {Kind::kExl2, Kind::kF16}) {
    const Case c{.name = "batch", .kind = kind, .tokens = 70, .experts = 4, .k = 2};
    const MadeExperts made = make_experts(c);
    const Call call = made_call(c, made);
    const std::vector<float> together = run(ctx, call, 0, c.tokens);
    for (const std::int64_t t : {0, 33, 69}) {
      const std::vector<float> alone = run(ctx, call, t, 1);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        ASSERT_EQ(alone[i], together[static_cast<std::size_t>(t * kHidden) + i]) << t;
      }
    }
  }
}

}  // namespace
}  // namespace bl::test
