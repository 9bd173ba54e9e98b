#include "base/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>

#include "base/check.h"

namespace bl {
namespace {

// Spins this many rounds (about 50 µs) before sleeping: longer than the serial gaps between two
// parallel regions of a decode step, short enough that an idle server burns nothing.
constexpr int kSpinRounds = 4000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `flag` differs from `old`: spinning first, then asleep in the kernel.
void wait_for_change(std::atomic<std::uint32_t>& flag, std::uint32_t old) {
  for (int i = 0; i < kSpinRounds; ++i) {
    if (flag.load(std::memory_order_acquire) != old) return;
    relax();
  }
  while (flag.load(std::memory_order_acquire) == old) flag.wait(old, std::memory_order_acquire);
}

// The first line of a sysfs file that holds one number; `fallback` where there is none.
int read_number(const std::string& path, int fallback) {
  std::ifstream file(path);
  int value = fallback;
  file >> value;
  return file ? value : fallback;
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  const std::function<void(int)>* body = nullptr;
  bool stopping = false;
  alignas(64) std::atomic<std::uint32_t> generation{0};
  alignas(64) std::atomic<std::uint32_t> running{0};

  void work(int thread) {
    std::uint32_t seen = 0;
    while (true) {
      wait_for_change(generation, seen);
      seen = generation.load(std::memory_order_acquire);
      if (stopping) return;
      (*body)(thread);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads <= 0) threads = physical_cores();
  for (int i = 1; i < threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping = true;
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(const std::function<void(int)>& body) {
  const auto workers = static_cast<std::uint32_t>(state_->workers.size());
  if (workers == 0) {
    body(0);
    return;
  }
  state_->body = &body;
  state_->running.store(workers, std::memory_order_relaxed);
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  body(0);
  std::uint32_t left = state_->running.load(std::memory_order_acquire);
  while (left != 0) {
    wait_for_change(state_->running, left);
    left = state_->running.load(std::memory_order_acquire);
  }
}

void ThreadPool::parallel_for(long count, long grain, const std::function<void(long, long)>& body) {
  BL_CHECK(grain > 0);
  if (count <= grain || threads() == 1) {
    if (count > 0) body(0, count);
    return;
  }
  std::atomic<long> next{0};
  run([&](int) {
    while (true) {
      const long begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      body(begin, std::min(begin + grain, count));
    }
  });
}

int physical_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::pair<int, int>> cores;  // (package, core): hyper-threads count once
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    cores.emplace(read_number(topology + "physical_package_id", 0),
                  read_number(topology + "core_id", cpu));
  }
  int count = std::max<int>(1, static_cast<int>(cores.size()));
  // A container's quota: "max 100000" or "200000 100000" in microseconds.
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota >> period && period > 0 && quota > 0) {
    count = std::max(1, std::min(count, static_cast<int>(quota / period + 0.5)));
  }
  return count;
}

}  // namespace bl
