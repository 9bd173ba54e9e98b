#include "server/health.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"

namespace bl::server {
namespace {

std::int64_t steady_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

HealthMonitor::HealthMonitor(ServerState& state, std::atomic<bool>& device_failed, Times times)
    : state_(state), device_failed_(device_failed), times_(times) {}

HealthMonitor::~HealthMonitor() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void HealthMonitor::start() {
  thread_ = std::thread([this] { run(); });
}

void HealthMonitor::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, times_.interval, [&] { return over_; })) {
    lock.unlock();
    if (state_.running() > 0) ask();
    if (device_failed_) try_device();
    lock.lock();
  }
}

void HealthMonitor::ask() {
  for (const auto& model : state_.models()) {
    asked_at_ = steady_ms();
    model->engine().settled_stats();
  }
  asked_at_ = 0;
}

void HealthMonitor::try_device() {
  const auto now = std::chrono::steady_clock::now();
  if (now - tried_ < times_.retry) return;
  tried_ = now;
  try {
    for (const auto& model : state_.models()) {
      asked_at_ = steady_ms();
      model->engine().warm_up();
    }
    device_failed_ = false;
    log_info("the device computes again");
  } catch (const Error& error) {
    log_warning("the device still fails: {}", error.what());
  }
  asked_at_ = 0;
}

bool HealthMonitor::stuck() const {
  const std::int64_t since = asked_at_;
  return since != 0 && steady_ms() - since > times_.stuck_after.count();
}

HealthMonitor::Verdict HealthMonitor::verdict() const {
  if (!state_.registry().ready()) return {false, "loading model", "Loading model"};
  if (stuck()) {
    return {false, "stuck",
            fmt::format("requests are running, and no step has ended for {} seconds",
                        times_.stuck_after.count() / 1000)};
  }
  if (device_failed_) {
    return {false, "device failed",
            "the device failed in the middle of a request; it is tried again every few seconds"};
  }
  return {};
}

}  // namespace bl::server
