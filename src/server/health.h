#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "server/server_state.h"

namespace bl::server {

// Finds out whether requests are answered. While requests run, it asks each engine for its state,
// which waits for the step under way; where no answer comes for some time, generation is stuck.
// After the card has failed, it tries a short answer now and then, so that health is good again
// when the card is.
class HealthMonitor {
 public:
  struct Times {
    std::chrono::milliseconds interval{1000};
    std::chrono::milliseconds stuck_after{60'000};  // more than the longest step
    std::chrono::milliseconds retry{5'000};
  };
  // `state` and `device_failed` outlive it.
  HealthMonitor(ServerState& state, std::atomic<bool>& device_failed, Times times);
  // Waits for the question under way, and so for ever where an engine is stuck for ever.
  ~HealthMonitor();
  HealthMonitor(const HealthMonitor&) = delete;
  HealthMonitor& operator=(const HealthMonitor&) = delete;

  void start();
  struct Verdict {
    bool good = true;
    std::string status = "ok";  // or "loading model", "stuck", "device failed"
    std::string message{};      // what is wrong
  };
  // Never waits.
  Verdict verdict() const;
  bool stuck() const;

 private:
  void run();
  void ask();
  void try_device();

  ServerState& state_;
  std::atomic<bool>& device_failed_;
  const Times times_;
  std::atomic<std::int64_t> asked_at_{0};  // steady milliseconds; 0: no question is open
  std::chrono::steady_clock::time_point tried_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace bl::server
