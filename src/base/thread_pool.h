#pragma once
#include <memory>

namespace bl {

// A fixed team of threads for short, frequent parallel regions (about five per transformer block),
// where waking a thread through the kernel would cost more than the work. Idle workers spin for a
// while, then sleep. Only one thread at a time may start regions; it works too. Bodies must not
// throw, and starting a region allocates nothing.
class ThreadPool {
 public:
  // `threads` includes the caller and is cut to 1024; 0 means one thread per physical core.
  explicit ThreadPool(int threads = 0);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const;  // the caller included

  // Runs body(thread) once on every thread, thread in [0, threads()), and returns when all are
  // done.
  template <class F>
  void run(const F& body) {
    start(task_of(body), Joining::kAll);
  }

  // Runs body(0) on the caller, and body(thread) on every worker that arrives before body(0) is
  // done; a worker that is late, asleep or preempted is not waited for. For bodies that take pieces
  // of work from a shared counter until none is left.
  template <class F>
  void run_any(const F& body) {
    start(task_of(body), Joining::kAny);
  }

  // Runs body(begin, end) over [0, count) in pieces of `grain` > 0, each on whichever thread is
  // free. One thread, or a single piece, gets the whole range in one call.
  template <class F>
  void parallel_for(long count, long grain, const F& body) {
    share_out(count, grain,
              {[](const void* f, long begin, long end) { (*static_cast<const F*>(f))(begin, end); },
               &body});
  }

 private:
  struct State;
  enum class Joining { kAll, kAny };
  // A borrowed callable, which unlike std::function allocates nothing.
  struct Task {
    void (*call)(const void* body, int thread);
    const void* body;
  };
  struct RangeTask {
    void (*call)(const void* body, long begin, long end);
    const void* body;
  };
  template <class F>
  static Task task_of(const F& body) {
    return {[](const void* f, int thread) { (*static_cast<const F*>(f))(thread); }, &body};
  }
  void start(const Task& task, Joining joining);
  void share_out(long count, long grain, const RangeTask& task);

  std::unique_ptr<State> state_;
};

// The number of physical cores that this process may use, at least 1. Its CPU affinity and the
// cgroup's CPU quota are respected.
int physical_cores();

}  // namespace bl
