// What the choice of one token costs on one core, by chain, over a vocabulary of 131,072.
//
//   sampler_bench [--benchmark_filter=peaked/.*]
//
// Two kinds of rows: `peaked` as models give them when they know what comes (a few tokens hold most
// of the mass, the rest is a wide bell), `flat` as a bell of deviation 3, in which ten thousand
// tokens share it: the worst that sampling meets in practice.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "sample/sampler_chain.h"
#include "sample/token_log_probability.h"

namespace bl {
namespace {

constexpr std::size_t kVocab = 131072;
constexpr std::size_t kRows = 8;  // as the logits of a batch: 4 MiB, not in the first caches

std::vector<std::vector<float>> make_rows(bool peaked) {
  std::mt19937 bits(7);
  std::normal_distribution<float> normal(0, peaked ? 2.0f : 3.0f);
  std::vector<std::vector<float>> rows(kRows, std::vector<float>(kVocab));
  for (std::vector<float>& row : rows) {
    for (float& x : row) x = normal(bits);
    if (!peaked) continue;
    for (int i = 0; i < 200; ++i) {
      row[bits() % kVocab] = 18 - 0.06f * static_cast<float>(i) + 0.5f * normal(bits);
    }
  }
  return rows;
}

std::vector<std::int32_t> make_history(std::size_t size) {
  std::mt19937 bits(9);
  std::vector<std::int32_t> history(size);
  for (std::int32_t& id : history) id = static_cast<std::int32_t>(bits() % 4000);
  return history;
}

struct ChainCase {
  std::string name;
  SamplingParams params;
  std::size_t history = 0;
};

std::vector<ChainCase> chains() {
  std::vector<ChainCase> list;
  const auto add = [&](const char* name, auto change, std::size_t history = 0) {
    SamplingParams params = SamplingParams::plain();
    change(params);
    list.push_back({name, params, history});
  };
  add("greedy", [](SamplingParams& p) { p.temperature = 0; });
  add("temperature", [](SamplingParams& p) { p.temperature = 0.8; });
  add("top-k 50", [](SamplingParams& p) { p.top_k = 50; });
  add("top-p 0.95", [](SamplingParams& p) { p.top_p = 0.95; });
  add("min-p 0.05", [](SamplingParams& p) { p.min_p = 0.05; });
  add("defaults", [](SamplingParams& p) { p = SamplingParams{}; });
  add("temperature, top-k, top-p, min-p", [](SamplingParams& p) {
    p.temperature = 0.8;
    p.top_k = 100;
    p.top_p = 0.9;
    p.min_p = 0.02;
  });
  add("temperature, top-p, min-p", [](SamplingParams& p) {
    p.temperature = 0.8;
    p.top_p = 0.9;
    p.min_p = 0.02;
  });
  const auto penalties = [](SamplingParams& p) {
    p = SamplingParams{};
    p.repetition_penalty = 1.1;
    p.frequency_penalty = 0.1;
  };
  add("penalties over 2,000 tokens", penalties, 2000);
  add("penalties over 32,000 tokens", penalties, 32000);
  add(
      "DRY over 32,000 tokens", [](SamplingParams& p) { p.dry_multiplier = 0.8; }, 32000);
  add("typical alone", [](SamplingParams& p) { p.typical = 0.9; });
  add("tail-free alone", [](SamplingParams& p) { p.tfs = 0.95; });
  add("mirostat alone", [](SamplingParams& p) { p.mirostat_mode = 2; });
  add(
      "everything",
      [](SamplingParams& p) {
        p.repetition_penalty = 1.1;
        p.presence_penalty = 0.1;
        p.dry_multiplier = 0.8;
        p.logit_bias = {{5, 1.0}, {77, -1.0}};
        p.banned_tokens = {1, 2, 3};
        p.smoothing_factor = 0.2;
        p.top_n_sigma = 4;
        p.top_p = 0.98;
        p.top_a = 0.01;
        p.min_p = 0.001;
        p.tfs = 0.99;
        p.typical = 0.98;
        p.mirostat_mode = 2;
        p.mirostat_tau = 6;
        p.max_temp = 1.5;
        p.min_temp = 0.5;
        p.xtc_probability = 0.3;
        p.skew = 0.1;
        p.adaptive_target = 0.5;
      },
      8000);
  return list;
}

void run_chain(benchmark::State& state, const ChainCase& of, bool peaked) {
  const std::vector<std::vector<float>> rows = make_rows(peaked);
  const std::vector<std::int32_t> history = make_history(of.history);
  SamplerChain chain(of.params);
  std::uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(chain.pick(rows[position % kRows], history, position));
    ++position;
  }
}

void run_logprobs(benchmark::State& state) {
  const std::vector<std::vector<float>> rows = make_rows(true);
  TopLogProbabilities top;
  std::size_t i = 0;
  for (auto _ : state) top.find(rows[i++ % kRows], 20);
}

void register_all() {
  for (const bool peaked : {true, false}) {
    for (const ChainCase& of : chains()) {
      const std::string name = std::string(peaked ? "peaked/" : "flat/") + of.name;
      benchmark::RegisterBenchmark(name.c_str(), [of, peaked](benchmark::State& state) {
        run_chain(state, of, peaked);
      })->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::RegisterBenchmark("top 20 log-probabilities", run_logprobs)
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace bl

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  bl::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
