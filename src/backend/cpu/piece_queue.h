#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bl::cpu {

// Hands out pieces of work [0, count) to threads. Each thread starts with a run of consecutive
// pieces of its own, so that it reads where it has read before, and hardware and kernels can
// prefetch. A thread that has finished its run takes pieces of the others' runs.
class PieceQueue {
 public:
  PieceQueue(std::int64_t count, int threads)
      : size_(static_cast<std::size_t>(std::clamp(threads, 1, kMaxRuns))) {
    const auto size = static_cast<std::int64_t>(size_);
    for (std::int64_t i = 0; i < size; ++i) {
      Run& run = runs_[static_cast<std::size_t>(i)];
      run.next.store(count / size * i + std::min(i, count % size), std::memory_order_relaxed);
      run.end = count / size * (i + 1) + std::min(i + 1, count % size);
    }
  }

  // Returns the next piece for `thread` (0, 1, …), or −1 if none is left. Each piece is returned
  // once.
  std::int64_t take(int thread) {
    for (std::size_t i = 0; i < size_; ++i) {
      Run& run = runs_[(static_cast<std::size_t>(thread) + i) % size_];
      if (run.next.load(std::memory_order_relaxed) >= run.end) continue;
      const std::int64_t piece = run.next.fetch_add(1, std::memory_order_relaxed);
      if (piece < run.end) return piece;
    }
    return -1;
  }

  // Whether the next piece belongs to the same run, so that the same thread will probably take it.
  bool followed(std::int64_t piece) const {
    return std::none_of(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(size_),
                        [&](const Run& run) { return run.end == piece + 1; });
  }

 private:
  static constexpr int kMaxRuns = 64;  // with more threads, several share a run
  struct alignas(64) Run {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };
  std::array<Run, kMaxRuns> runs_;
  std::size_t size_;
};

}  // namespace bl::cpu
