#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace bl::server {

// Threads for what would hold up the sockets: reading JSON, templates, tokenizing, compiling
// schemas, and writing answers.
class WorkQueue {
 public:
  // `name`: of the threads; a literal.
  WorkQueue(const char* name, int threads, std::size_t most_waiting);
  ~WorkQueue() { stop(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Returns false, and drops the task, where too many wait already. Tasks must not throw.
  [[nodiscard]] bool try_post(std::function<void()> task);
  // Finishes the tasks that are running, drops those that wait, and from now on those that come.
  void stop();
  // For tasks that are bounded otherwise, such as one for each open request.
  void post(std::function<void()> task);

 private:
  void run();

  const std::size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace bl::server
