#include "engine/ready_callback.h"

#include <utility>

namespace bl {

void ReadyCallback::set(std::function<void()> function) {
  std::shared_ptr<const std::function<void()>> other;
  if (function) other = std::make_shared<const std::function<void()>>(std::move(function));
  std::unique_lock lock(mutex_);
  function_.swap(other);
  idle_.wait(lock, [this] { return !caller_ || *caller_ == std::this_thread::get_id(); });
  lock.unlock();  // the old function's own destructor may do anything
}

void ReadyCallback::call() noexcept {
  std::shared_ptr<const std::function<void()>> function;
  {
    const std::lock_guard lock(mutex_);
    if (!function_) return;
    function = function_;
    caller_ = std::this_thread::get_id();
  }
  (*function)();
  function.reset();
  {
    const std::lock_guard lock(mutex_);
    caller_.reset();
  }
  idle_.notify_all();
}

}  // namespace bl
