#pragma once
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "http/server.h"
#include "server/access.h"
#include "server/health.h"
#include "server/key_limits.h"
#include "server/request_record.h"
#include "server/router.h"
#include "server/server_state.h"

namespace bl::server {

// The whole server: HTTP, rights, limits, routes, models, and the books it keeps of its requests.
class ApiServer {
 public:
  struct Options {
    http::ServerOptions http{};
    AccessOptions access{};
    ModelOptions models{};
    FolderPaths folders{};
    KeyLimitOptions limits{};
    std::filesystem::path access_log{};  // "-": stderr; empty: none
    bool log_prompts = false;            // the log has the bodies of requests, too
    bool metrics = true;                 // GET /metrics answers
    bool slots = true;                   // GET /slots answers
    HealthMonitor::Times health{};
  };
  // Opens the sockets. Throws what http::Server and AccessLog throw.
  explicit ApiServer(Options options);
  // Stops at once.
  ~ApiServer();

  ServerState& state() { return state_; }
  const Router& router() const { return router_; }
  const HealthMonitor& health() const { return health_; }
  Books& books() { return *books_; }
  const http::Server& http() const { return *http_; }
  const std::vector<std::string>& addresses() const { return http_->addresses(); }
  std::uint16_t port() const { return http_->port(); }

  // Answers from now on, also while no model is loaded yet: with 503 then.
  void start();
  // Takes no more requests, cancels those that run, so that each stream has its last event, and
  // waits for that at most `most`.
  void stop(std::chrono::seconds most);

 private:
  std::optional<http::Response> check_head(const http::Request& head) const;
  void handle(std::shared_ptr<http::Exchange> exchange);
  // Runs the route on the queue of requests; `model` is held until its handler has its own lease.
  void post(const Route& route, Call call, std::shared_ptr<ServedModel> model);
  void run(const Route& route, const Call& call);
  void wait_for_model(const Route& route, const Call& call, const std::string& name);
  void tick();

  std::shared_ptr<Books> books_;
  Router router_;  // outlives the queues of `state_`, whose tasks run routes
  ServerState state_;
  HealthMonitor health_;
  std::unique_ptr<http::Server> http_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread ticker_;
};

}  // namespace bl::server
