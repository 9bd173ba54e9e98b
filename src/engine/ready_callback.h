#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace bl {

// A function that its owner may exchange at any time while another thread calls it.
class ReadyCallback {
 public:
  // Takes the place of the function before; an empty one: nothing is called from now on. Returns
  // when a call of the function before that is under way has ended, so that what it refers to may
  // go. Called from within that call, it returns at once.
  void set(std::function<void()> function);
  // Calls the function, if there is one, and holds no lock meanwhile. One thread calls at a time.
  // A function that throws ends the program.
  void call() noexcept;

 private:
  std::mutex mutex_;
  std::condition_variable idle_;
  std::shared_ptr<const std::function<void()>> function_;  // null: none
  std::optional<std::thread::id> caller_;                  // while a call is under way
};

}  // namespace bl
