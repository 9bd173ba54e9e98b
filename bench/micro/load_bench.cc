// The host's share of loading to a card: quantized matrices from the page cache, cut into slices of
// columns, into staging memory. Every pass maps the files anew, as a load does.
//
//   load_bench MODEL_FOLDER [THREADS]

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "backend/cuda/layout/packed_size.h"
#include "backend/cuda/weights/column_slice.h"
#include "base/thread_pool.h"
#include "format/load_weight_matrix.h"
#include "format/safetensors_folder.h"
#include "tensor/tensor.h"

namespace bl {
namespace {

struct Staging {
  std::vector<Buffer> laps;
  std::size_t turn = 0;
  Staging() {
    for (int i = 0; i < cuda::kLaps; ++i) laps.push_back(allocate_host(cuda::kLapBytes));
  }
  std::byte* next() { return static_cast<std::byte*>(laps[turn++ % laps.size()].data()); }
};

std::size_t stage(const Exl2Matrix& matrix, Staging& staging, ThreadPool& threads) {
  const cuda::CodePackPlan plan = cuda::plan_codes(matrix, matrix.out);
  const cuda::FileCodes file{matrix.q_weight, matrix.q_scale, {}, {}, matrix.out};
  const std::int64_t most = cuda::columns_that_fit(file, plan, cuda::kLapBytes);
  for (std::int64_t first = 0; first < matrix.out; first += most) {
    const std::int64_t count = std::min(most, matrix.out - first);
    cuda::copy_slice(file, plan, {first, count}, staging.next(), threads);
  }
  return matrix.q_weight.size_bytes() + matrix.q_scale.size_bytes();
}

void run(const std::string& folder, int thread_count) {
  ThreadPool threads(thread_count);
  Staging staging;
  constexpr int kPasses = 6;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    const SafetensorsFolder source(folder);
    std::size_t bytes = 0;
    constexpr std::string_view kCodes = ".q_weight";
    for (const std::string& name : source.names()) {
      if (!name.ends_with(kCodes)) continue;
      const std::string key = name.substr(0, name.size() - kCodes.size());
      const WeightMatrix matrix = load_weight_matrix(source, key, {});
      bytes += stage(std::get<Exl2Matrix>(matrix), staging, threads);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    fmt::print("{} threads: {:.1f} MB in {:.1f} ms, {:.2f} GB/s\n", threads.threads(),
               static_cast<double>(bytes) / 1e6, seconds.count() * 1e3,
               static_cast<double>(bytes) / seconds.count() / 1e9);
  }
}

}  // namespace
}  // namespace bl

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "load_bench MODEL_FOLDER [THREADS]\n");
    return 2;
  }
  bl::run(argv[1], argc > 2 ? std::atoi(argv[2]) : 0);
  return 0;
}
