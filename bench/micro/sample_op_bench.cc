// What the op `sample` costs on a card, over a vocabulary of 131,072: one op of a recorded step in
// which it comes 32 times.
//
//   sample_op_bench [--backend cuda:0] [--benchmark_filter=peaked/.*/16]
//
// Rows are those of sampler_bench: `peaked` as models give them when they know what comes, `flat` a
// bell of deviation 3. Names end in the number of rows.

#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "ops/backend.h"
#include "ops/sample.h"

namespace bl {
namespace {

constexpr std::int64_t kVocab = 131072;
constexpr int kOps = 32;  // of a step

struct RuleCase {
  const char* name;
  SampleRule rule;
  std::int32_t edits = 0;
};

std::vector<RuleCase> rule_cases() {
  const auto draw = [](float inverse, std::int32_t k, double p, double min_p) {
    SampleRule rule;
    rule.kind = SampleRule::Kind::kDraw;
    rule.draw = 0x6a09e667f3bcc908u;
    rule.inverse = inverse;
    rule.top_k = k;
    rule.top_p = p;
    rule.min_p = min_p;
    return rule;
  };
  SampleRule greedy;
  greedy.kind = SampleRule::Kind::kLikeliest;
  SampleRule penalised = draw(1.25f, 50, 0.95, 0);
  penalised.repetition = 1.1f;
  return {{"greedy", greedy},
          {"temperature", draw(1, 0, 1, 0)},
          {"min-p", draw(1, 0, 1, 0.05)},
          {"top-k", draw(1.25f, 50, 1, 0)},
          {"top-p", draw(1, 0, 0.95, 0)},
          {"usual", draw(1.25f, 50, 0.95, 0)},
          {"usual, 1000 penalties", penalised, 1000},
          {"k 5000, top-p", draw(1, 5000, 0.95, 0)}};
}

std::vector<float> make_rows(bool peaked, std::int64_t rows) {
  std::mt19937 bits(7);
  std::normal_distribution<float> normal(0, peaked ? 2.0f : 3.0f);
  std::vector<float> logits(static_cast<std::size_t>(rows * kVocab));
  for (float& x : logits) x = normal(bits);
  for (std::int64_t r = 0; peaked && r < rows; ++r) {
    for (int i = 0; i < 200; ++i) {
      logits[static_cast<std::size_t>(r * kVocab + bits() % kVocab)] =
          18 - 0.06f * static_cast<float>(i) + 0.5f * normal(bits);
    }
  }
  return logits;
}

class Bench {
 public:
  explicit Bench(Backend& backend)
      : backend_(backend), scratch_(backend.allocate(std::size_t{128} << 20)) {}

  template <class T>
  TensorView put(const std::vector<T>& values) {
    const auto words = static_cast<std::int64_t>(values.size() * sizeof(T) / 4);
    kept_.emplace_back(backend_.allocate(values.size() * sizeof(T)), DType::kI32, Shape{words});
    const TensorView to = kept_.back().view();
    backend_.upload(to, view_of(const_cast<T*>(values.data()), DType::kI32, {words}));
    backend_.synchronize();
    return to;
  }

  void run(benchmark::State& state, const RuleCase& c, bool peaked, std::int64_t rows) {
    kept_.clear();
    std::vector<SampleRule> rules(static_cast<std::size_t>(rows), c.rule);
    std::vector<LogitEdit> edits;
    for (SampleRule& rule : rules) {
      rule.first_edit = static_cast<std::int32_t>(edits.size());
      rule.edits = c.edits;
      for (std::int32_t i = 0; i < c.edits; ++i) edits.push_back({i * 131, 1.0f, 0.0f});
    }
    TensorView logits = put(make_rows(peaked, rows));
    logits = view_of(logits.data, DType::kF32, {rows, kVocab});
    const TensorView device_rules = put(rules);
    const TensorView device_edits = edits.empty() ? TensorView() : put(edits);
    const TensorView out = put(std::vector<std::int32_t>(static_cast<std::size_t>(2 * rows)));
    const SampleArgs args{.logits = logits,
                          .rules = device_rules.as<const SampleRule>(),
                          .edits = device_edits.as<const LogitEdit>(),
                          .max_edits = static_cast<std::int64_t>(edits.size()),
                          .ids = out.as<std::int32_t>(),
                          .log_probabilities = out.as<float>() + rows};
    key_ += 2;
    for (auto _ : state) {
      scratch_.release_to(0);
      ExecContext ctx = backend_.context(scratch_);
      backend_.run_step(key_, 0, ctx, [&](ExecContext& step) {
        for (int i = 0; i < kOps; ++i) step.ops->sample(step, args);
      });
      backend_.synchronize();
    }
    state.counters["s/op"] =
        benchmark::Counter(static_cast<double>(state.iterations()) * kOps,
                           static_cast<benchmark::Counter::Flags>(benchmark::Counter::kIsRate |
                                                                  benchmark::Counter::kInvert));
  }

 private:
  Backend& backend_;
  Arena scratch_;
  std::vector<Tensor> kept_;
  std::uint64_t key_ = 1;
};

}  // namespace
}  // namespace bl

int main(int argc, char** argv) {
  std::string name = "cuda:0";
  if (argc > 2 && std::strcmp(argv[1], "--backend") == 0) {
    name = argv[2];
    argc -= 2;
    argv += 2;
  }
  const std::unique_ptr<bl::Backend> backend = bl::open_backend(name, {});
  if (backend->ops().sample == nullptr) {
    std::fprintf(stderr, "%s has no op `sample`\n", name.c_str());
    return 1;
  }
  bl::Bench bench(*backend);
  for (const bool peaked : {true, false}) {
    for (const bl::RuleCase& c : bl::rule_cases()) {
      for (const std::int64_t rows : {1, 16, 64}) {
        const std::string title =
            std::string(peaked ? "peaked/" : "flat/") + c.name + "/" + std::to_string(rows);
        benchmark::RegisterBenchmark(title.c_str(), [&bench, c, peaked, rows](auto& state) {
          bench.run(state, c, peaked, rows);
        })->Unit(benchmark::kMicrosecond);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
