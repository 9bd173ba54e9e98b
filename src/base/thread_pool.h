#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace bl {

// A fixed team of threads for short, frequent parallel regions (five a transformer block), where
// waking through the kernel would cost more than the work. Idle workers spin for a while, then
// sleep. One caller at a time; the caller works too.
class ThreadPool {
 public:
  // `threads` includes the caller; 0 means one a physical core.
  explicit ThreadPool(int threads = 0);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const;

  // Runs body(thread) once on every thread, thread in [0, threads()), and returns when all are
  // done. body must not throw.
  void run(const std::function<void(int thread)>& body);

  // Runs body(i) for i in [0, count), handed out in runs of `grain` to whichever thread is free.
  void parallel_for(long count, long grain, const std::function<void(long begin, long end)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Physical cores this process may run on (affinity and cgroup quota respected), at least 1.
int physical_cores();

}  // namespace bl
