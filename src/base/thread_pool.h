#pragma once
#include <memory>

namespace bl {

// A fixed team of threads for short, frequent parallel regions (five a transformer block), where
// waking through the kernel would cost more than the work. Idle workers spin for a while, then
// sleep. One caller at a time; the caller works too. Bodies must not throw, and starting a region
// allocates nothing.
class ThreadPool {
 public:
  // `threads` includes the caller; 0 means one a physical core.
  explicit ThreadPool(int threads = 0);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const;

  // Runs body(thread) once on every thread, thread in [0, threads()), and returns when all are
  // done.
  template <class F>
  void run(const F& body) {
    start(task_of(body), Joining::kAll);
  }

  // Runs body(0) here, and body(thread) on each worker that comes before this one is done; nobody
  // waits for a worker that is late, asleep or pushed off its processor. For bodies that take
  // pieces of work from a shared counter until none is left.
  template <class F>
  void run_any(const F& body) {
    start(task_of(body), Joining::kAny);
  }

  // Runs body(begin, end) over [0, count), handed out in runs of `grain` to whichever thread is
  // free.
  template <class F>
  void parallel_for(long count, long grain, const F& body) {
    share_out(count, grain,
              {[](const void* f, long begin, long end) { (*static_cast<const F*>(f))(begin, end); },
               &body});
  }

 private:
  struct State;
  enum class Joining { kAll, kAny };
  // A borrowed callable: no allocation, unlike std::function.
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

// Physical cores this process may run on (affinity and cgroup quota respected), at least 1.
int physical_cores();

}  // namespace bl
