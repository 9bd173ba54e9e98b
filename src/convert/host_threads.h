#pragma once
#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"

namespace bl {

// The threads of a host backend, or the calling thread alone.
class HostThreads {
 public:
  // `pool` may be null and must outlive this.
  explicit HostThreads(ThreadPool* pool) : pool_(pool) {}

  // Runs body(begin, end) over [0, count) in pieces of `grain`.
  template <class F>
  void parallel(std::int64_t count, std::int64_t grain, const F& body) const {
    if (pool_ != nullptr) {
      pool_->parallel_for(static_cast<long>(count), static_cast<long>(grain), body);
    } else {
      for (std::int64_t i = 0; i < count; i += grain) body(i, std::min(count, i + grain));
    }
  }

 private:
  ThreadPool* pool_;
};

}  // namespace bl
