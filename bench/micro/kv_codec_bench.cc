// What a row of the cache costs on one core: nanoseconds to encode a head's vector, to decode a
// value row, and to decode a key (of sixteen at once).
//
//   kv_codec_bench [--benchmark_filter=avx512/.*]

#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/kv_rows.h"

namespace bl {
namespace {

constexpr int kRows = 64;  // enough for branches not to be learnt, few enough for the first cache

struct Rows {
  explicit Rows(const KvRow& row) : format(cpu::row_format(row)) {
    std::mt19937 bits(1);
    std::normal_distribution<float> normal;
    for (int i = 0; i < kRows * row.dim; ++i) x.push_back(normal(bits));
    bytes.resize(kRows * row.bytes());
    room.resize(static_cast<std::size_t>(cpu::kLaneSlots * row.dim));
  }
  cpu::RowFormat format;
  std::vector<float> x;
  std::vector<float> room;
  std::vector<std::byte> bytes;
};

void encode(benchmark::State& state, const cpu::AttentionKernels& kernels, const KvRow& row) {
  Rows rows(row);
  for (auto _ : state) {
    for (std::size_t r = 0; r < kRows; ++r) {
      kernels.encode_row(rows.format, rows.x.data() + r * static_cast<std::size_t>(row.dim),
                         rows.room.data(), rows.bytes.data() + r * row.bytes());
    }
    benchmark::ClobberMemory();
  }
  state.counters["row"] = benchmark::Counter(
      kRows, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void decode_value(benchmark::State& state, const cpu::AttentionKernels& kernels, const KvRow& row) {
  Rows rows(row);
  for (std::size_t r = 0; r < kRows; ++r) {
    kernels.encode_row(rows.format, rows.x.data() + r * static_cast<std::size_t>(row.dim),
                       rows.room.data(), rows.bytes.data() + r * row.bytes());
  }
  for (auto _ : state) {
    for (std::size_t r = 0; r < kRows; ++r) {
      kernels.decode_value(rows.format, rows.bytes.data() + r * row.bytes(), rows.room.data());
    }
    benchmark::ClobberMemory();
  }
  state.counters["row"] = benchmark::Counter(
      kRows, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void decode_keys(benchmark::State& state, const cpu::AttentionKernels& kernels, const KvRow& row) {
  Rows rows(row);
  for (auto _ : state) {
    for (std::size_t r = 0; r < kRows; r += cpu::kLaneSlots) {
      kernels.decode_keys(rows.format, rows.bytes.data() + r * row.bytes(), rows.room.data());
    }
    benchmark::ClobberMemory();
  }
  state.counters["row"] = benchmark::Counter(
      kRows, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void register_all() {
  for (const cpu::Isa isa : cpu::available_isas()) {
    const cpu::AttentionKernels& kernels = cpu::kernels_for(isa).attention;
    for (const int dim : {64, 128}) {
      for (const NamedCacheType& type : kCacheTypes) {
        const KvRow row{type.code, type.bits, dim};
        const auto name = [&](const char* what) {
          return std::string(cpu::name_of(isa)) + "/" + what + "/" + std::string(type.name) + "/" +
                 std::to_string(dim);
        };
        benchmark::RegisterBenchmark(
            name("encode").c_str(),
            [&kernels, row](benchmark::State& state) { encode(state, kernels, row); });
        benchmark::RegisterBenchmark(
            name("value").c_str(),
            [&kernels, row](benchmark::State& state) { decode_value(state, kernels, row); });
        benchmark::RegisterBenchmark(name("key").c_str(), [&kernels, row](benchmark::State& state) {
          decode_keys(state, kernels, row);
        });
      }
    }
  }
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
