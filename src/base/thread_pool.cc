#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/thread_name.h"

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

// Reads the number that a sysfs file holds; returns `fallback` where there is none.
int read_number(const std::string& path, int fallback) {
  std::ifstream file(path);
  int value = fallback;
  file >> value;
  return file ? value : fallback;
}

}  // namespace

// The gate of a region: who may enter, and who is inside. It is one word, so that a worker enters
// exactly the region that it saw, and only while that region is open.
//   bits 63…32 region number · bit 31 closed · bits 30…16 entered so far · bits 15…0 now inside
namespace gate {
constexpr std::uint64_t kClosed = std::uint64_t{1} << 31;
constexpr std::uint64_t kEnter = (std::uint64_t{1} << 16) + 1;
constexpr std::uint32_t region(std::uint64_t g) { return static_cast<std::uint32_t>(g >> 32); }
constexpr std::uint32_t entered(std::uint64_t g) {
  return static_cast<std::uint32_t>(g >> 16) & 0x7fffu;
}
constexpr std::uint32_t inside(std::uint64_t g) { return static_cast<std::uint32_t>(g) & 0xffffu; }
}  // namespace gate

struct ThreadPool::State {
  std::vector<std::thread> workers;
  Task task{};                    // the open region's task
  std::uint32_t next_region = 1;  // used by the caller only
  std::atomic<bool> stopping{false};
  alignas(64) std::atomic<std::uint64_t> gate{gate::kClosed};
  alignas(64) std::atomic<std::uint32_t> call{0};   // changes when a region opens
  alignas(64) std::atomic<std::uint32_t> pulse{0};  // changes when a worker leaves

  void work(int thread) {
    std::uint32_t seen = 0;  // number of the last region that it saw
    while (true) {
      wait_for_change(call, seen);
      if (stopping.load(std::memory_order_acquire)) return;
      std::uint64_t g = gate.load(std::memory_order_acquire);
      const std::uint32_t region = gate::region(g);
      if (region == seen) continue;  // `call` has not caught up with the gate yet
      seen = region;
      while (gate::region(g) == region && (g & gate::kClosed) == 0) {
        if (!gate.compare_exchange_weak(g, g + gate::kEnter, std::memory_order_acq_rel)) continue;
        task.call(task.body, thread);
        gate.fetch_sub(1, std::memory_order_acq_rel);
        pulse.fetch_add(1, std::memory_order_release);
        pulse.notify_one();
        break;
      }
    }
  }

  // Waits until at least `expected` workers have entered and all that entered have left.
  void wait_for_workers(std::uint32_t expected) {
    while (true) {
      const std::uint32_t before = pulse.load(std::memory_order_acquire);
      const std::uint64_t g = gate.load(std::memory_order_acquire);
      if (gate::entered(g) >= expected && gate::inside(g) == 0) return;
      wait_for_change(pulse, before);
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  constexpr int kMaxThreads = 1024;
  if (threads <= 0) threads = physical_cores();
  threads = std::min(threads, kMaxThreads);
  for (int i = 1; i < threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] {
      name_this_thread("compute");
      state->work(i);
    });
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_release);
  state_->call.fetch_add(1, std::memory_order_release);
  state_->call.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::start(const Task& task, Joining joining) {
  State& state = *state_;
  const auto workers = static_cast<std::uint32_t>(state.workers.size());
  if (workers == 0) {
    task.call(task.body, 0);
    return;
  }
  state.task = task;
  const std::uint32_t region = state.next_region++;
  state.gate.store(static_cast<std::uint64_t>(region) << 32, std::memory_order_release);
  state.call.store(region, std::memory_order_release);
  state.call.notify_all();
  task.call(task.body, 0);
  if (joining == Joining::kAll) state.wait_for_workers(workers);
  state.gate.fetch_or(gate::kClosed, std::memory_order_acq_rel);
  state.wait_for_workers(0);
}

void ThreadPool::share_out(long count, long grain, const RangeTask& task) {
  BL_CHECK(grain > 0);
  if (count <= grain || threads() == 1) {
    if (count > 0) task.call(task.body, 0, count);
    return;
  }
  std::atomic<long> next{0};
  run_any([&](int) {
    while (true) {
      const long begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      task.call(task.body, begin, std::min(begin + grain, count));
    }
  });
}

int physical_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::pair<int, int>> cores;  // (package, core): hyper-threads of one core count once
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    cores.emplace(read_number(topology + "physical_package_id", 0),
                  read_number(topology + "core_id", cpu));
  }
  int count = std::max<int>(1, static_cast<int>(cores.size()));
  // The container's quota and period in microseconds: "max 100000" or "200000 100000".
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota >> period && period > 0 && quota > 0) {
    count = std::max(1, std::min(count, static_cast<int>(quota / period + 0.5)));
  }
  return count;
}

}  // namespace bl
