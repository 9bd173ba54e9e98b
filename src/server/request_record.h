#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "http/exchange.h"
#include "server/access.h"
#include "server/access_log.h"
#include "server/answer_meter.h"
#include "server/key_limits.h"
#include "server/metrics.h"

namespace bl::server {

// Where the server writes down what it was asked. All requests share it.
struct Books {
  Books(AccessOptions options, KeyLimitOptions limit_options)
      : access(std::move(options)), limits(limit_options) {}

  AccessPolicy access;
  KeyLimits limits;
  Metrics metrics{};
  std::unique_ptr<AccessLog> log{};  // null: none
  bool log_prompts = false;          // the log has the bodies of requests
  // A request ended with kDevice, and none has ended well since.
  std::atomic<bool> device_failed{false};
};

// Writes down a request that was refused before it became an exchange. `route`: as in
// Metrics::Asked.
void record_refusal(Books& books, const http::Request& head, int status, const std::string& route);

// The exchange that routes get. It passes everything on, and writes the request into the books when
// the last holder lets go of it.
class RequestRecord : public http::Exchange, public AnswerMeter {
 public:
  struct Args {
    std::shared_ptr<Books> books{};
    std::shared_ptr<http::Exchange> inner{};
    std::string route{};  // as in Metrics::Asked
    std::string key_name{};
    std::vector<http::Field> fields{};  // added to the answer
    std::unique_ptr<KeyLimits::Place> place{};
  };
  explicit RequestRecord(Args args);
  ~RequestRecord() override;

  const http::Request& request() const override { return args_.inner->request(); }
  void respond(http::Response response) override;
  void begin(http::Response head) override;
  void write(std::string_view piece) override;
  void end() override;
  void abort() override;
  std::size_t unsent() const override { return args_.inner->unsent(); }
  bool gone() const override { return args_.inner->gone(); }
  void watch(std::function<void()> watcher) override { args_.inner->watch(std::move(watcher)); }

  void on_answer(const ServedModel& model, const Event& last) override;
  void on_embedding(const ServedModel& model, std::int64_t tokens, double seconds) override;

 private:
  using Clock = std::chrono::steady_clock;
  void answered(int status);
  std::string line(int status, double seconds) const;

  Args args_;
  const Clock::time_point began_ = Clock::now();
  std::atomic<int> status_{0};
  std::atomic<bool> whole_{false};  // the answer was said to its end
  std::atomic<std::int64_t> bytes_{0};
  std::mutex mutex_;  // for what follows
  double first_byte_ = 0;
  std::string model_;
  std::string finish_;
  std::int64_t prompt_tokens_ = 0;
  std::int64_t cached_tokens_ = 0;
  std::int64_t generated_tokens_ = 0;
};

}  // namespace bl::server
