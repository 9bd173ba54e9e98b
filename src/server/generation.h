#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "http/exchange.h"
#include "server/answer_meter.h"
#include "server/served_model.h"
#include "server/work_queue.h"

namespace bl::server {

// What a route makes of the engine's events. All calls come from one thread at a time.
class Reply {
 public:
  Reply() = default;
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;
  virtual ~Reply() = default;

  // The news of request number `request` of the generation. Throws the error of a choice that has
  // ended with one.
  virtual void on_event(std::size_t request, Event event, http::Exchange& to) = 0;
  // All requests are over.
  virtual void on_end(http::Exchange& to) = 0;
  // The answer cannot be made or finished. Streams that have begun end with an event that says so.
  virtual void on_error(const Error& error, http::Exchange& to) = 0;
  // Nothing was sent for some time: writes what keeps the connection open, where the protocol has
  // such. Returns whether it wrote something.
  virtual bool on_quiet(http::Exchange& to) {
    static_cast<void>(to);
    return false;
  }
};

// Requests of the engine on their way to one client. It lives as long as the engine or the client
// may still bring news: when the client leaves, its requests are cancelled at once.
//
// News from the engine's thread and from the sockets' threads only post a task, which reads what
// there is. A client that reads slowly makes it stop reading, so the engine pauses the request.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Args {
    std::shared_ptr<ServedModel> model;
    std::vector<Request> requests;
    std::unique_ptr<Reply> reply{};
    std::shared_ptr<http::Exchange> to;
    WorkQueue* queue = nullptr;  // outlives it
    std::string id{};            // by which clients name it while it runs; may be empty
    std::string owner{};         // Rights::key_name of who began it
  };
  explicit Generation(Args args);

  // Submits the requests. Throws what Engine::try_submit() throws, HttpError 503 where the queue is
  // full, and 501 where the model only embeds texts; then none of them is computed.
  void start();
  // Cancels the requests; the client gets their last events.
  void cancel();
  const std::string& id() const { return args_.id; }
  const std::string& owner() const { return args_.owner; }
  // The parameters that tokens are chosen by now.
  SamplingParams sampling() const;
  // Has all requests choose their tokens by other parameters from now on. Throws what
  // Engine::change_sampling() throws.
  void change_sampling(const SamplingParams& sampling);
  // Keeps the connection open where nothing was sent for `quiet`. Called now and then.
  void tick(std::chrono::seconds quiet);
  bool over() const { return over_.load(std::memory_order_relaxed); }

 private:
  void schedule();
  void pump();
  bool read_events();
  void finish();
  void meter_unfinished();

  Args args_;
  AnswerMeter* const meter_;  // args_.to; null where it is none
  // What the choices of each request have cost so far: a client that leaves does not see their
  // last events.
  struct Cost {
    std::int64_t prompt_tokens = 0;
    std::int64_t generated_tokens = 0;
  };
  std::vector<Cost> unfinished_;
  mutable std::mutex mutex_;  // held by the one task that runs
  std::vector<RequestHandle> handles_;
  SamplingParams sampling_;
  std::size_t open_ = 0;  // handles that are not over
  std::atomic<bool> scheduled_{false};
  std::atomic<bool> over_{false};
  std::atomic<std::int64_t> last_sent_{0};  // steady milliseconds
};

}  // namespace bl::server
