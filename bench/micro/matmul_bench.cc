// How fast the CPU backend multiplies, by format, shape and rows.
//
//   matmul_bench [--benchmark_filter=…] [--threads=2] [--isa=portable|avx2|avxvnni|avx512]
//
// `product/…`: one matrix over and over, many copies of it in turn so that weights come from
// memory, as in a decode step. Counters, of the fastest iteration: weights read in GB/s, their
// share of what this machine reads with the same threads (`read` measures that), multiplications a
// second. `step/…`: all products of one step of a 135M model at 4.0 bits a weight (30 blocks and a
// 6-bit head, widths and group sizes as a real file mixes them): tokens a second were it nothing
// else.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "support/random_matrix.h"

namespace bl {
namespace {

using test::GroupShape;

constexpr std::size_t kColdBytes = std::size_t{256} << 20;

struct Options {
  int threads = 2;
  cpu::Isa isa = cpu::available_isas().back();
};

// The fastest iteration: what is left when other programs disturb the machine.
class Best {
 public:
  void start() { start_ = std::chrono::steady_clock::now(); }
  void stop() {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start_;
    seconds_ = std::min(seconds_, time.count());
  }
  double seconds() const { return seconds_; }

 private:
  std::chrono::steady_clock::time_point start_;
  double seconds_ = 1e9;
};

// What an op call needs, for up to `rows` rows.
struct Machine {
  Machine(const Options& options, std::int64_t rows, std::int64_t max_in)
      : backend(options.threads, options.isa),
        scratch(backend.allocate(backend.scratch_bytes({.tokens = rows, .max_in = max_in}))) {
    ctx = backend.context(scratch);
  }
  CpuBackend backend;
  Arena scratch;
  ExecContext ctx;
};

// Bytes a second that the threads read from memory together.
double read_bandwidth(ThreadPool& threads) {
  static const double measured = [&] {
    const Buffer memory = allocate_host(kColdBytes);
    std::memset(memory.data(), 1, memory.bytes());
    const auto* words = static_cast<const std::uint64_t*>(memory.data());
    const std::size_t share = memory.bytes() / 8 / static_cast<std::size_t>(threads.threads());
    double best = 0;
    for (int round = 0; round < 20; ++round) {
      const auto start = std::chrono::steady_clock::now();
      threads.run([&](int thread) {
        const std::uint64_t* p = words + static_cast<std::size_t>(thread) * share;
        std::uint64_t sums[8] = {};
        for (std::size_t i = 0; i + 8 <= share; i += 8) {
          for (std::size_t j = 0; j < 8; ++j) sums[j] += p[i + j];
        }
        benchmark::DoNotOptimize(sums);
      });
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      best = std::max(best, static_cast<double>(memory.bytes()) / time.count());
    }
    return best;
  }();
  return measured;
}

std::vector<GroupShape> groups_of(int bits, std::int64_t in, std::int32_t slots) {
  return std::vector<GroupShape>(static_cast<std::size_t>(in / slots), GroupShape{bits, slots});
}

struct Shape2 {
  std::int64_t in = 0;
  std::int64_t out = 0;
};

std::size_t weight_bytes(const WeightMatrix& matrix) { return stored_bytes(matrix); }

void run_product(benchmark::State& state, const Options& options, const WeightMatrix& matrix,
                 std::int64_t rows) {
  Machine machine(options, rows, in_features(matrix));
  const std::size_t bytes = weight_bytes(matrix);
  const std::size_t copies = rows > 64 ? 4 : std::max<std::size_t>(1, kColdBytes / bytes);
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  for (std::size_t i = 0; i < copies; ++i) packed.push_back(machine.backend.pack(matrix, {}));
  test::Engine random(1);
  std::vector<float> x =
      test::random_floats(static_cast<std::size_t>(rows * in_features(matrix)), random);
  std::vector<float> out(static_cast<std::size_t>(rows * out_features(matrix)));
  std::size_t next = 0;
  Best best;
  for (auto _ : state) {
    best.start();
    const MatmulOutput output{
        packed[next].get(), view_of(out.data(), {rows, out_features(matrix)}), {}};
    machine.backend.ops().matmul(machine.ctx, {.x = view_of(x.data(), {rows, in_features(matrix)}),
                                               .outputs = {&output, 1}});
    best.stop();
    next = (next + 1) % packed.size();
  }
  const double bytes_per_second = static_cast<double>(bytes) / best.seconds();
  state.counters["GB/s"] = bytes_per_second * 1e-9;
  state.counters["of_read"] = bytes_per_second / read_bandwidth(*machine.backend.threads());
  state.counters["GMAC/s"] = static_cast<double>(rows) * 1e-9 *
                             static_cast<double>(in_features(matrix)) *
                             static_cast<double>(out_features(matrix)) / best.seconds();
}

// The matrices of one block that read the same input, in the order of a step.
struct Stage {
  std::vector<std::unique_ptr<PackedMatrix>> weights;
  std::int64_t in = 0;
};

class StepModel {
 public:
  StepModel(CpuBackend& backend, bool dense) : backend_(backend), dense_(dense) {
    // (width, group size) and its share, in the order in which blocks get them.
    const std::vector<std::pair<GroupShape, int>> mix{{{5, 32}, 3}, {{4, 32}, 14}, {{2, 64}, 4},
                                                      {{3, 32}, 4}, {{4, 64}, 3},  {{6, 64}, 2}};
    for (const auto& [group, blocks] : mix) {
      for (int i = 0; i < blocks; ++i) add_block(group);
    }
    add_stage(576, {49152}, {6, 64});
  }

  void run(ExecContext& ctx, std::int64_t rows, std::vector<float>& x, std::vector<float>& out) {
    for (const Stage& stage : stages_) {
      const bool head = &stage == &stages_.back();
      const std::int64_t used = head ? 1 : rows;
      std::vector<MatmulOutput> outputs;
      float* at = out.data();
      for (const auto& weight : stage.weights) {
        outputs.push_back({weight.get(), view_of(at, {used, weight->out()}), {}});
        at += used * weight->out();
      }
      backend_.ops().matmul(ctx, {.x = view_of(x.data(), {used, stage.in}), .outputs = outputs});
    }
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void add_block(const GroupShape& group) {
    add_stage(576, {576, 192, 192}, group);
    add_stage(576, {576}, group);
    add_stage(576, {1536, 1536}, group);
    add_stage(1536, {576}, group);
  }
  void add_stage(std::int64_t in, const std::vector<std::int64_t>& outs, const GroupShape& group) {
    Stage stage;
    stage.in = in;
    std::vector<std::int32_t> perm;
    for (const std::int64_t out : outs) {
      WeightMatrix matrix;
      if (dense_) {
        matrix = test::random_dense({.in = in, .out = out}, random_);
      } else {
        Exl2Matrix exl2 = test::random_exl2(groups_of(group.bits, in, group.slots), out, random_);
        if (perm.empty()) perm = exl2.perm;
        exl2.perm = perm;  // they share a Hessian, and so a permutation
        matrix = std::move(exl2);
      }
      bytes_ += stored_bytes(matrix);
      stage.weights.push_back(backend_.pack(matrix, {}));
    }
    stages_.push_back(std::move(stage));
  }

  CpuBackend& backend_;
  bool dense_;
  test::Engine random_{2};
  std::vector<Stage> stages_;
  std::size_t bytes_ = 0;
};

void run_step(benchmark::State& state, const Options& options, bool dense, std::int64_t rows) {
  Machine machine(options, rows, 1536);
  StepModel model(machine.backend, dense);
  test::Engine random(1);
  std::vector<float> x = test::random_floats(static_cast<std::size_t>(rows * 1536), random);
  std::vector<float> out(static_cast<std::size_t>(rows * 3072 + 49152));
  Best best;
  for (auto _ : state) {
    best.start();
    model.run(machine.ctx, rows, x, out);
    best.stop();
  }
  const double bandwidth = read_bandwidth(*machine.backend.threads());
  state.counters["tok/s"] = static_cast<double>(rows) / best.seconds();
  state.counters["of_read"] = static_cast<double>(model.bytes()) / bandwidth / best.seconds();
}

void register_all(const Options& options) {
  for (const std::int64_t rows : {1, 4, 16, 512}) {
    for (const bool dense : {false, true}) {
      const std::string name =
          std::string("step/") + (dense ? "fp16" : "exl2-4.0") + "/rows:" + std::to_string(rows);
      benchmark::RegisterBenchmark(
          name.c_str(), [=](benchmark::State& state) { run_step(state, options, dense, rows); })
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
  for (const Shape2 shape : {Shape2{576, 576}, Shape2{1536, 576}, Shape2{4096, 4096}}) {
    for (const std::int64_t rows : {1, 4, 16, 512}) {
      const std::string place = std::to_string(shape.in) + "x" + std::to_string(shape.out) +
                                "/rows:" + std::to_string(rows);
      for (const int bits : {2, 3, 4, 5, 6, 8}) {
        for (const std::int32_t slots : {32, 64}) {
          const std::string name =
              "product/exl2-" + std::to_string(bits) + "g" + std::to_string(slots) + "/" + place;
          benchmark::RegisterBenchmark(
              name.c_str(),
              [=](benchmark::State& state) {
                test::Engine random(1);
                run_product(state, options,
                            test::random_exl2(groups_of(bits, shape.in, slots), shape.out, random),
                            rows);
              })
              ->UseRealTime()
              ->Unit(benchmark::kMicrosecond);
        }
      }
      benchmark::RegisterBenchmark(
          ("product/gptq-4g128/" + place).c_str(),
          [=](benchmark::State& state) {
            test::Engine random(1);
            run_product(
                state, options,
                test::random_gptq({.in = shape.in / 128 * 128, .out = shape.out, .group_size = 128},
                                  random),
                rows);
          })
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
      for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
        const std::string name = "product/" + std::string(name_of(dtype)) + "/" + place;
        benchmark::RegisterBenchmark(
            name.c_str(),
            [=](benchmark::State& state) {
              test::Engine random(1);
              run_product(
                  state, options,
                  test::random_dense({.dtype = dtype, .in = shape.in, .out = shape.out}, random),
                  rows);
            })
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
  benchmark::RegisterBenchmark("read", [=](benchmark::State& state) {
    ThreadPool threads(options.threads);
    for (auto _ : state) state.counters["GB/s"] = read_bandwidth(threads) * 1e-9;
  })->Iterations(1);
}

// Takes our own flags out of the list; false when one is wrong.
bool parse(Options& options, std::vector<char*>& arguments) {
  std::vector<char*> rest;
  for (char* argument : arguments) {
    const std::string text(argument);
    if (text.rfind("--threads=", 0) == 0) {
      options.threads = std::stoi(text.substr(10));
    } else if (text.rfind("--isa=", 0) == 0) {
      const std::vector<std::string> names{"portable", "avx2", "avxvnni", "avx512"};
      const auto found = std::find(names.begin(), names.end(), text.substr(6));
      if (found == names.end()) return false;
      options.isa = static_cast<cpu::Isa>(found - names.begin());
    } else {
      rest.push_back(argument);
    }
  }
  arguments = rest;
  return true;
}

}  // namespace
}  // namespace bl

int main(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  bl::Options options;
  if (!bl::parse(options, arguments)) return 2;
  bl::register_all(options);
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
