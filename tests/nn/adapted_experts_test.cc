// Routed experts with adapters on every backend, against the explicit sum of dequantized weights
// and deltas, in double: experts of every format, plain and fused, rows with different mixes in one
// step.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/device.h"
#include "base/error.h"
#include "nn/adapted_experts.h"
#include "support/expert_activation.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

constexpr std::int64_t kHidden = 160;
constexpr std::int64_t kWidth = 96;
constexpr int kExperts = 4;
constexpr int kPerToken = 2;
constexpr std::int64_t kRank = 5;

enum class Kind { kF32, kBF16, kExl2, kGptq };

struct Case {
  const char* name;
  Kind kind = Kind::kF32;
  bool gated = true;
  bool fused = false;
  bool biased = false;
  bool on_input = false;
  Activation activation = Activation::kSilu;
};

std::vector<Case> cases() {
  return {{.name = "f32"},
          {.name = "bf16", .kind = Kind::kBF16, .biased = true},
          {.name = "exl2", .kind = Kind::kExl2},
          {.name = "gptq", .kind = Kind::kGptq, .biased = true},
          {.name = "fused, limited",
           .fused = true,
           .biased = true,
           .activation = Activation::kSwigluOai},
          {.name = "fused exl2", .kind = Kind::kExl2, .fused = true},
          {.name = "not gated", .gated = false, .activation = Activation::kRelu2},
          {.name = "weights on the input", .biased = true, .on_input = true}};
}

struct Matrix {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::vector<double> values;  // [in, out]
};

Matrix dense_values(const DenseMatrix& matrix) {
  Matrix result{matrix.in(), matrix.out(), {}};
  visit_float_dtype(matrix.weight.view.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t i = 0; i < result.in; ++i) {
      for (std::int64_t c = 0; c < result.out; ++c) {
        result.values.push_back(
            static_cast<double>(static_cast<float>(matrix.weight.view.row<const T>(c)[i])));
      }
    }
  });
  return result;
}

// A linear as the test knows it, and what adapters add to it.
struct Known {
  Matrix weight;
  std::vector<float> bias;
  std::int32_t id = -1;
};

// A delta as the test knows it.
struct ExpertDelta {
  std::int32_t linear = -1;
  std::int64_t first_column = 0;
  float scale = 1;
  Matrix a, b;
};

struct Adapter {
  std::vector<ExpertDelta> deltas;
  std::shared_ptr<LoraAdapter> packed = std::make_shared<LoraAdapter>();
};

struct Weighted {
  const Adapter* adapter;
  float weight;
};
using Mix = std::vector<Weighted>;

std::vector<double> times(const std::vector<double>& x, const Matrix& matrix) {
  std::vector<double> y(static_cast<std::size_t>(matrix.out), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t c = 0; c < y.size(); ++c) y[c] += x[i] * matrix.values[i * y.size() + c];
  }
  return y;
}

// x · (W + Σ weight · scale · A · B) + bias
std::vector<double> apply(const Known& linear, const Mix& mix, const std::vector<double>& x) {
  std::vector<double> y = times(x, linear.weight);
  for (std::size_t c = 0; c < linear.bias.size(); ++c) y[c] += static_cast<double>(linear.bias[c]);
  for (const Weighted& one : mix) {
    for (const ExpertDelta& delta : one.adapter->deltas) {
      if (delta.linear != linear.id) continue;
      const std::vector<double> more = times(times(x, delta.a), delta.b);
      for (std::size_t c = 0; c < more.size(); ++c) {
        y[static_cast<std::size_t>(delta.first_column) + c] +=
            static_cast<double>(one.weight) * static_cast<double>(delta.scale) * more[c];
      }
    }
  }
  return y;
}

// A layer of experts on a backend, with all that the test must know of it.
class Layer {
 public:
  Layer(Device& device, const Case& c) : device_(device), case_(c) {
    spec_.hidden = kHidden;
    spec_.experts = kExperts;
    spec_.per_token = kPerToken;
    spec_.weights_on_input = c.on_input;
    spec_.expert.hidden = kHidden;
    spec_.expert.intermediate = kWidth;
    spec_.expert.gated = c.gated;
    spec_.expert.activation = c.activation;
    spec_.expert.limit = c.activation == Activation::kSwigluOai ? 0.5f : 0.0f;
    Moe::Weights weights;
    weights.fused_gate_up = c.fused;
    Known router;
    weights.router = linear(random_dense({DType::kF32, kHidden, kExperts}, engine_), 0, router);
    router_ = std::move(router);
    for (int e = 0; e < kExperts; ++e) {
      Expert& expert = experts_.emplace_back();
      Moe::Expert to;
      const std::int32_t id = id_of(e, 0);
      if (c.gated && !c.fused) to.gate = linear(random(kHidden, kWidth), id, expert.gate);
      to.up = linear(random(kHidden, c.fused ? 2 * kWidth : kWidth), id + 1, expert.up);
      to.down = linear(random(kWidth, kHidden), id + 2, expert.down);
      weights.experts.push_back(std::move(to));
    }
    const std::vector<float> zeros(static_cast<std::size_t>(kHidden));
    weights.zeros = Tensor(device.backend().allocate(zeros.size() * sizeof(float)), DType::kF32,
                           Shape{kHidden});
    device.backend().upload(weights.zeros.view(),
                            view_of(const_cast<float*>(zeros.data()), DType::kF32, {kHidden}));
    moe_ = Moe(spec_, std::move(weights));
    moe_.pack(device.backend());
  }

  // Of gate (0), up (1) and down (2) of an expert.
  static std::int32_t id_of(int expert, int role) { return 7 + 3 * expert + role; }
  const MoeSpec& spec() const { return spec_; }

  void add(Adapter& adapter, std::int32_t id, std::int64_t first_column, const Shape& shape) {
    const DenseMatrix a = random_dense({DType::kF32, shape[0], kRank}, engine_);
    const DenseMatrix b = random_dense({DType::kBF16, kRank, shape[1]}, engine_);
    ExpertDelta delta{id, first_column, 20.0f, dense_values(a), dense_values(b)};
    adapter.packed->add(id, {device_.backend().pack(a, {}), device_.backend().pack(b, {}),
                             first_column, delta.scale});
    adapter.deltas.push_back(std::move(delta));
  }

  // One row after the experts, added to `before` with the multiplier of a residual stream.
  std::vector<double> expected(const float* x, const float* before, const Mix& mix) const {
    const std::vector<double> row(x, x + kHidden);
    const std::vector<double> logits = apply(router_, {}, row);
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    order.resize(kPerToken);
    double total = 0;
    for (const std::size_t e : order) total += std::exp(logits[e] - logits[order[0]]);
    std::vector<double> sum(before, before + kHidden);
    for (const std::size_t e : order) {
      const double weight = kMultiplier * std::exp(logits[e] - logits[order[0]]) / total;
      const std::vector<double> y = run_expert(experts_[e], mix, row, weight);
      for (std::size_t i = 0; i < y.size(); ++i) sum[i] += y[i];
    }
    return sum;
  }

  std::vector<float> run(const std::vector<float>& x, const std::vector<float>& before,
                         const StepAdapters* adapters) {
    const Shape shape{std::ssize(x) / kHidden, kHidden};
    const TensorView out = device_.put_strided(before, shape, 4);
    ExecContext ctx = device_.context();
    ctx.adapters = adapters;
    const TensorView input = device_.put(x, shape);
    moe_.forward(ctx, {input, {}}, {.to = out, .add = true, .multiplier = float{kMultiplier}});
    return device_.get(out);
  }

 private:
  static constexpr double kMultiplier = 0.5;
  struct Expert {
    Known gate, up, down;
  };

  std::vector<double> run_expert(const Expert& expert, const Mix& mix, std::vector<double> row,
                                 double weight) const {
    if (case_.on_input) {
      for (double& value : row) value *= weight;
    }
    std::vector<double> up = apply(expert.up, mix, row);
    const std::vector<double> gate =
        case_.gated && !case_.fused ? apply(expert.gate, mix, row) : up;
    if (case_.fused) up.erase(up.begin(), up.begin() + kWidth);
    std::vector<double> hidden;
    for (std::size_t i = 0; i < static_cast<std::size_t>(kWidth); ++i) {
      hidden.push_back(activated(case_.activation, gate[i], up[i], case_.gated));
    }
    std::vector<double> y = apply(expert.down, mix, hidden);
    if (!case_.on_input) {
      for (double& value : y) value *= weight;
    }
    return y;
  }

  WeightMatrix random(std::int64_t in, std::int64_t out) {
    switch (case_.kind) {
      case Kind::kExl2:
        return random_exl2({{5, 32}, {4, static_cast<std::int32_t>(in - 64)}, {3, 32}}, out,
                           engine_);
      case Kind::kGptq:
        return random_gptq({4, in, out, 32, true, GptqZeros::kBytes}, engine_);
      case Kind::kBF16:
        return random_dense({DType::kBF16, in, out}, engine_);
      default:
        return random_dense({DType::kF32, in, out}, engine_);
    }
  }

  Linear linear(const WeightMatrix& matrix, std::int32_t id, Known& known) {
    Backend& backend = device_.backend();
    std::unique_ptr<PackedMatrix> packed = backend.pack(matrix, {});
    const Tensor values = ref_.backend().unpack(*ref_.backend().pack(matrix, {}));
    const auto* first = values.view().as<const float>();
    known.weight = {packed->in(), packed->out(), {first, first + packed->in() * packed->out()}};
    known.id = id;
    Tensor bias;
    if (case_.biased && id > 0) {
      known.bias = random_.normal(packed->out(), 0.1f);
      bias = Tensor(backend.allocate(known.bias.size() * sizeof(float)), DType::kF32,
                    Shape{packed->out()});
      backend.upload(bias.view(), view_of(known.bias.data(), DType::kF32, {packed->out()}));
    }
    return {std::move(packed), std::move(bias), id};
  }

  Device& device_;
  Case case_;
  Device ref_{"ref"};
  Random random_{51};
  Engine engine_{52};
  MoeSpec spec_;
  Known router_;
  std::vector<Expert> experts_;
  Moe moe_;
};

// Adapters of a layer, and rows of one step that have mixes of them.
struct Step {
  explicit Step(Layer& layer, const Case& c, std::int64_t many) {
    if (c.fused) {
      layer.add(first, Layer::id_of(1, 1), 0, {kHidden, kWidth});        // gate
      layer.add(second, Layer::id_of(2, 1), kWidth, {kHidden, kWidth});  // up
      layer.add(second, Layer::id_of(1, 1), 0, {kHidden, 2 * kWidth});   // both
    } else {
      layer.add(first, Layer::id_of(1, c.gated ? 0 : 1), 0, {kHidden, kWidth});
      layer.add(second, Layer::id_of(1, 1), 0, {kHidden, kWidth});
      layer.add(second, Layer::id_of(0, 1), 32, {kHidden, 48});
    }
    layer.add(first, Layer::id_of(1, 2), 0, {kWidth, kHidden});
    layer.add(second, Layer::id_of(3, 2), 0, {kWidth, kHidden});
    layer.add(elsewhere, 300, 0, {kHidden, kWidth});
    append({{&first, 1.0f}}, many);
    append({}, 2);
    append({{&elsewhere, 1.0f}}, 1);
    append({{&second, -0.75f}, {&first, 2.0f}}, many);
    append({{&elsewhere, 1.0f}}, 2);
    append({{&second, 0.5f}}, 1);
  }
  void append(const Mix& mix, std::int64_t count) {
    AdapterMix packed;
    for (const Weighted& one : mix) packed.push_back({one.adapter->packed, one.weight});
    for (std::int64_t i = 0; i < count; ++i) {
      mixes.push_back(mix);
      packed_mixes.push_back(packed);
    }
  }
  StepAdapters adapters() const {
    StepAdapters step;
    for (const AdapterMix& mix : packed_mixes) step.append(&mix, 1);
    return step;
  }

  Adapter first, second, elsewhere;
  std::vector<Mix> mixes;  // of each row
  std::vector<AdapterMix> packed_mixes;
};

std::vector<float> row_of(const std::vector<float>& rows, std::size_t row) {
  const auto first = rows.begin() + static_cast<long>(row) * kHidden;
  return {first, first + kHidden};
}

class AdaptedExperts : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Backends, AdaptedExperts, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

// More rows of an expert than are worked on at once, too.
TEST_P(AdaptedExperts, EqualWeightsPlusDeltas) {
  for (const Case& c : cases()) {
    const bool plain = c.kind == Kind::kF32 || c.kind == Kind::kBF16;
    for (const std::int64_t many : {7, 150}) {
      if (many > 7 && c.kind != Kind::kF32 && c.kind != Kind::kExl2) continue;
      SCOPED_TRACE(fmt::format("{}, {} rows", c.name, many));
      Device device(GetParam());
      Layer layer(device, c);
      const Step step(layer, c, many);
      Random random(53);
      const auto rows = std::ssize(step.mixes);
      const std::vector<float> x = random.normal(rows * kHidden);
      const std::vector<float> before = random.normal(rows * kHidden, 0.1f);
      const StepAdapters adapters = step.adapters();
      const std::vector<float> got = layer.run(x, before, &adapters);
      double worst = 0;
      double scale = 0;
      double effect = 0;
      for (std::size_t r = 0; r < step.mixes.size(); ++r) {
        const std::size_t at = r * static_cast<std::size_t>(kHidden);
        const std::vector<double> sum = layer.expected(&x[at], &before[at], step.mixes[r]);
        const std::vector<double> without = layer.expected(&x[at], &before[at], {});
        for (std::size_t i = 0; i < sum.size(); ++i) {
          const double error = std::fabs(static_cast<double>(got[at + i]) - sum[i]);
          worst = std::isnan(error) ? INFINITY : std::max(worst, error);
          scale = std::max(scale, std::fabs(sum[i]));
          effect = std::max(effect, std::fabs(sum[i] - without[i]));
        }
      }
      const bool exact = GetParam() == "ref" || plain;
      EXPECT_LE(worst, (exact ? 2e-5 : 4e-3) * scale + 1e-6);
      EXPECT_GE(effect, 0.1 * scale);  // or nothing was tested
    }
  }
}

// To the bit, where kernels are chosen without regard to the batch; and rows whose adapters touch
// no expert get what they get in a step where nobody has any.
TEST_P(AdaptedExperts, EachRowIsWhatItIsAlone) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Device device(GetParam());
    device.context().deterministic = true;
    Layer layer(device, c);
    const Step step(layer, c, 9);
    Random random(54);
    const std::vector<float> x = random.normal(std::ssize(step.mixes) * kHidden);
    const std::vector<float> before = random.normal(std::ssize(step.mixes) * kHidden);
    const StepAdapters adapters = step.adapters();
    const std::vector<float> together = layer.run(x, before, &adapters);
    const std::vector<float> without = layer.run(x, before, nullptr);
    for (std::size_t r = 0; r < step.mixes.size(); ++r) {
      StepAdapters one;
      one.append(&step.packed_mixes[r], 1);
      EXPECT_EQ(row_of(together, r), layer.run(row_of(x, r), row_of(before, r), &one)) << r;
      const bool changed = std::any_of(step.mixes[r].begin(), step.mixes[r].end(),
                                       [&](auto& m) { return m.adapter != &step.elsewhere; });
      if (changed) continue;
      EXPECT_EQ(row_of(together, r), row_of(without, r)) << r;
    }
  }
}

// Calls of the experts op: rows of each.
std::vector<std::int64_t>& op_calls() {
  static std::vector<std::int64_t> calls;
  return calls;
}

TEST(AdaptedExpertsTest, OnlyTheRowsConcernedLeaveTheOp) {
  const Case c{.name = "f32"};
  Device device("ref");
  Layer layer(device, c);
  const Step step(layer, c, 3);
  OpTable counting = device.ops();
  counting.experts = [](ExecContext& ctx, const ExpertsArgs& args) {
    op_calls().push_back(args.x.rows());
    static const Device real("ref");
    real.ops().experts(ctx, args);
  };
  device.context().ops = &counting;
  const auto rows = std::ssize(step.mixes);
  const std::vector<float> x(static_cast<std::size_t>(rows * kHidden), 0.5f);
  const auto calls_with = [&](const StepAdapters* adapters) {
    op_calls().clear();
    layer.run(x, x, adapters);
    return op_calls();
  };
  EXPECT_EQ(calls_with(nullptr), std::vector<std::int64_t>{rows});
  StepAdapters other;
  const AdapterMix elsewhere{{step.elsewhere.packed, 1.0f}};
  other.append(&elsewhere, rows);
  EXPECT_EQ(calls_with(&other), std::vector<std::int64_t>{rows});
  const StepAdapters mixed = step.adapters();
  EXPECT_EQ(calls_with(&mixed), (std::vector<std::int64_t>{3, 2}));
}

// What it takes is what is planned, beside products of four deltas with the rows.
TEST(AdaptedExpertsTest, ScratchIsPlanned) {
  for (const Case& c : cases()) {
    for (const std::int64_t many : {1, 20, 150}) {
      SCOPED_TRACE(fmt::format("{}, {} rows", c.name, many));
      Device device("ref");
      Layer layer(device, c);
      const Step step(layer, c, many);
      const auto rows = std::ssize(step.mixes);
      const std::size_t deltas =
          4 * arena_bytes(DType::kF32, std::min<std::int64_t>(rows, 64) * kRank);
      EXPECT_LE(deltas, lora_work_bytes(rows));
      Arena arena(device.backend().allocate(Moe::work_bytes(layer.spec(), rows) + deltas));
      device.context().scratch = &arena;
      const std::vector<float> x(static_cast<std::size_t>(rows * kHidden), 0.5f);
      const StepAdapters adapters = step.adapters();
      layer.run(x, x, &adapters);
      EXPECT_GT(arena.peak(), 0u);  // more than the arena has aborts
    }
  }
}

}  // namespace
}  // namespace bl::test
