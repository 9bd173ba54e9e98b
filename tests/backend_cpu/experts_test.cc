// The experts op against its definition, computed with single matmuls of the same backend.

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "support/random_matrix.h"

namespace bl::test {
namespace {

// Stands in for the backend's own, which is not what this test is about: out = gate · up, or
// gate + 1.
void plain_activate(ExecContext&, const ActivateArgs& args) {
  for (std::int64_t r = 0; r < args.gate.rows(); ++r) {
    for (std::int64_t c = 0; c < args.gate.columns(); ++c) {
      const float gate = args.gate.row<float>(r)[c];
      args.out.row<float>(r)[c] = args.up.empty() ? gate + 1.0f : gate * args.up.row<float>(r)[c];
    }
  }
}

enum class Kind { kGated, kFused, kPlain };

struct Model {
  Kind kind = Kind::kGated;
  std::int64_t hidden = 64;
  std::int64_t intermediate = 96;
  std::vector<std::unique_ptr<PackedMatrix>> matrices;
  std::vector<ExpertWeights> experts;
};

Model make_model(Backend& backend, Kind kind, int experts, Engine& random) {
  Model model;
  model.kind = kind;
  const auto add = [&](const WeightMatrix& matrix) {
    model.matrices.push_back(backend.pack(matrix, {}));
    return model.matrices.back().get();
  };
  for (int e = 0; e < experts; ++e) {
    ExpertWeights weights;
    const std::int64_t up = model.intermediate * (kind == Kind::kFused ? 2 : 1);
    if (e % 3 == 0) {
      weights.up = add(random_dense({.in = model.hidden, .out = up}, random));
    } else {
      weights.up = add(random_exl2({{6, 32}, {3, 32}}, up, random));
    }
    if (kind == Kind::kGated) {
      weights.gate = add(random_exl2({{4, 64}}, model.intermediate, random));
    }
    weights.down = add(random_exl2({{5, 96}}, model.hidden, random));
    model.experts.push_back(weights);
  }
  return model;
}

struct Batch {
  std::int64_t tokens = 0;
  int k = 0;
  std::vector<float> x;
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
};

Batch make_batch(const Model& model, std::int64_t tokens, int k, Engine& random) {
  Batch batch{
      tokens, k, random_floats(static_cast<std::size_t>(tokens * model.hidden), random), {}, {}};
  const auto count = static_cast<std::int32_t>(model.experts.size());
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto first = static_cast<std::int32_t>(random() % model.experts.size());
    for (int j = 0; j < k; ++j) {
      batch.experts.push_back((first + j * 3) % count);
      batch.weights.push_back(std::uniform_real_distribution<float>(0.1f, 1.0f)(random));
    }
  }
  return batch;
}

std::vector<float> run(CpuBackend& backend, const OpTable& ops, const Model& model,
                       const Batch& batch, bool on_input) {
  Arena scratch(
      backend.allocate(backend.scratch_bytes({.tokens = batch.tokens,
                                              .max_in = std::max(model.hidden, model.intermediate),
                                              .max_out = 2 * model.intermediate,
                                              .experts_per_token = batch.k,
                                              .expert_intermediate = model.intermediate})));
  ExecContext ctx = backend.context(scratch);
  ctx.ops = &ops;  // whose activation is the test's
  Batch input = batch;
  std::vector<float> out(batch.x.size(), 0.25f);
  ops.experts(ctx, {.x = view_of(input.x.data(), {batch.tokens, model.hidden}),
                    .all = model.experts,
                    .experts = batch.experts.data(),
                    .weights = view_of(input.weights.data(), {batch.tokens, batch.k}),
                    .k = batch.k,
                    .fused_gate_up = model.kind == Kind::kFused,
                    .weights_on_input = on_input,
                    .intermediate = model.intermediate,
                    .activation = {},
                    .out = view_of(out.data(), {batch.tokens, model.hidden})});
  EXPECT_EQ(scratch.mark(), 0u);
  return out;
}

std::vector<float> multiply(CpuBackend& backend, const PackedMatrix& weight, std::vector<float> x) {
  Arena scratch(backend.allocate(backend.scratch_bytes({.tokens = 1, .max_in = weight.in()})));
  ExecContext ctx = backend.context(scratch);
  ctx.threads = nullptr;
  std::vector<float> out(static_cast<std::size_t>(weight.out()));
  const MatmulOutput output{&weight, view_of(out.data(), {1, weight.out()}), {}};
  backend.ops().matmul(ctx, {.x = view_of(x.data(), {1, weight.in()}), .outputs = {&output, 1}});
  return out;
}

std::vector<float> expected_row(CpuBackend& backend, const Model& model, const Batch& batch,
                                std::int64_t t, bool on_input) {
  const auto begin = batch.x.begin() + t * model.hidden;
  std::vector<float> out(static_cast<std::size_t>(model.hidden), 0.25f);
  for (int j = 0; j < batch.k; ++j) {
    const auto at = static_cast<std::size_t>(t * batch.k + j);
    const ExpertWeights& expert = model.experts[static_cast<std::size_t>(batch.experts[at])];
    std::vector<float> x(begin, begin + model.hidden);
    if (on_input) {
      for (float& v : x) v *= batch.weights[at];
    }
    std::vector<float> up = multiply(backend, *expert.up, x);
    std::vector<float> hidden(static_cast<std::size_t>(model.intermediate));
    const std::vector<float> gate =
        model.kind == Kind::kGated ? multiply(backend, *expert.gate, x) : up;
    for (std::size_t i = 0; i < hidden.size(); ++i) {
      switch (model.kind) {
        case Kind::kGated:
          hidden[i] = gate[i] * up[i];
          break;
        case Kind::kFused:
          hidden[i] = up[i] * up[hidden.size() + i];
          break;
        case Kind::kPlain:
          hidden[i] = up[i] + 1.0f;
          break;
      }
    }
    const std::vector<float> y = multiply(backend, *expert.down, hidden);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] += (on_input ? 1.0f : batch.weights[at]) * y[i];
    }
  }
  return out;
}

TEST(Experts, EqualTheirDefinitionForAnyBatchAndThreads) {
  Engine random(1);
  for (const Kind kind : {Kind::kGated, Kind::kFused, Kind::kPlain}) {
    for (const int experts : {5, 40}) {
      for (const int threads : {1, 3}) {
        CpuBackend backend(threads);
        cpu::CpuOps ops = cpu::make_ops(cpu::available_isas().back());
        ops.activate = plain_activate;
        const Model model = make_model(backend, kind, experts, random);
        for (const std::int64_t tokens : {1, 7, 700}) {
          const bool on_input = tokens == 7;
          SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + " experts " +
                       std::to_string(experts) + " tokens " + std::to_string(tokens));
          const Batch batch = make_batch(model, tokens, tokens == 7 ? 1 : 4, random);
          const auto got = run(backend, ops, model, batch, on_input);
          for (const std::int64_t t : {std::int64_t{0}, tokens / 2, tokens - 1}) {
            const auto expected = expected_row(backend, model, batch, t, on_input);
            for (std::size_t i = 0; i < expected.size(); ++i) {
              const float value = got[static_cast<std::size_t>(t * model.hidden) + i];
              ASSERT_NEAR(value, expected[i], 1e-4f * (1.0f + std::fabs(expected[i])));
            }
            // The same token alone gives the same bits.
            const auto row = static_cast<std::ptrdiff_t>(t);
            const Batch alone{
                1,
                batch.k,
                {batch.x.begin() + row * model.hidden, batch.x.begin() + (row + 1) * model.hidden},
                {batch.experts.begin() + row * batch.k,
                 batch.experts.begin() + (row + 1) * batch.k},
                {batch.weights.begin() + row * batch.k,
                 batch.weights.begin() + (row + 1) * batch.k}};
            const auto single = run(backend, ops, model, alone, on_input);
            for (std::size_t i = 0; i < single.size(); ++i) {
              ASSERT_EQ(single[i], got[static_cast<std::size_t>(t * model.hidden) + i]);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace bl::test
