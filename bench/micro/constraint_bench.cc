// What a constraint costs on one core: the mask of the next token, and accepting it, along JSON
// that a schema asks for; and compiling the schema.
//
//   constraint_bench [--benchmark_filter=…]     BITLOOM_MODEL=DIR: the vocabulary (else a tiny one)

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "sample/constraint_compiler.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

constexpr const char* kSchema =
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":130},)"
    R"("email":{"type":"string","pattern":"^[a-z0-9.]+@[a-z0-9]+\\.(com|org)$"},)"
    R"("tags":{"type":"array","items":{"type":"string"},"maxItems":8},)"
    R"("address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}},"required":["street","city"]}},)"
    R"("required":["name","age","email","tags","address"]})";
constexpr const char* kText =
    R"({"name": "Ada Lovelace, the first of them", "age": 36, "email": "ada.lovelace@example.com", )"
    R"("tags": ["analyst", "poet", "mathematics", "engines of difference"], )"
    R"("address": {"street": "12 St James's Square", "city": "London"}})";

const Tokenizer& tokenizer() {
  static const std::unique_ptr<Tokenizer> loaded = [] {
    const char* folder = std::getenv("BITLOOM_MODEL");
    return Tokenizer::load(folder != nullptr ? folder : "models/smollm2-135m");
  }();
  return *loaded;
}

ConstraintSpec spec_of(int number) {
  using Kind = ConstraintSpec::Kind;
  if (number == 0) return {.kind = Kind::kJsonSchema, .text = kSchema};
  if (number == 1) return {.kind = Kind::kJsonObject};
  return {.kind = Kind::kRegex, .text = R"([\x20-\x7e]*)"};
}

const char* name_of(int number) {
  return number == 0 ? "schema" : (number == 1 ? "any JSON object" : "regex");
}

// The median and the highest of the masks along the text, in microseconds, beside the mean time of
// the whole.
void masks(benchmark::State& state) {
  const int number = static_cast<int>(state.range(0));
  state.SetLabel(name_of(number));
  ConstraintCompiler compiler(tokenizer());
  const CompiledConstraint compiled = compiler.compile(spec_of(number));
  const std::vector<std::int32_t> ids = tokenizer().encode(kText, {.add_special = false});
  std::vector<double> times;
  for (auto _ : state) {
    Constraint constraint(compiled, {0});
    for (const std::int32_t id : ids) {
      const auto begin = std::chrono::steady_clock::now();
      constraint.prepare();
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
              .count());
      constraint.accept(id);
    }
  }
  std::sort(times.begin(), times.end());
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(ids.size()));
  state.counters["mask_median_us"] = times[times.size() / 2];
  state.counters["mask_p99_us"] = times[times.size() * 99 / 100];
  state.counters["tokens"] = static_cast<double>(ids.size());
}
BENCHMARK(masks)->DenseRange(0, 2)->Unit(benchmark::kMicrosecond);

void compile(benchmark::State& state) {
  const int number = static_cast<int>(state.range(0));
  state.SetLabel(name_of(number));
  ConstraintLimits limits;
  limits.cache_bytes = 0;
  ConstraintCompiler compiler(tokenizer(), limits);
  for (auto _ : state) benchmark::DoNotOptimize(compiler.compile(spec_of(number)));
}
BENCHMARK(compile)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace bl

BENCHMARK_MAIN();
