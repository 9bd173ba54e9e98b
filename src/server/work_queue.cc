#include "server/work_queue.h"

#include <utility>

#include "base/thread_name.h"

namespace bl::server {

WorkQueue::WorkQueue(const char* name, int threads, std::size_t most_waiting)
    : most_waiting_(most_waiting) {
  for (int i = 0; i < threads; ++i)
    threads_.emplace_back([this, name] {
      name_this_thread(name);
      run();
    });
}

void WorkQueue::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
    dropped.swap(waiting_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool WorkQueue::try_post(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    if (waiting_.size() >= most_waiting_) return false;
    if (!over_) waiting_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void WorkQueue::post(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    if (!over_) waiting_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void WorkQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return over_ || !waiting_.empty(); });
    if (over_) return;
    std::function<void()> task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it holds is freed without the lock
    lock.lock();
  }
}

}  // namespace bl::server
