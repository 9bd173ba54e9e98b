#pragma once
#include <cstdint>
#include <string>

namespace bl::test {

struct Stopped {};

// Progress of a job that counts its calls and kills the job when more than `stop_after` come.
// `calls` must outlive it.
inline auto stopping_progress(int stop_after, int& calls) {
  return [stop_after, &calls](const std::string&, std::int64_t, std::int64_t) {
    if (calls++ >= stop_after) throw Stopped();
  };
}

}  // namespace bl::test
