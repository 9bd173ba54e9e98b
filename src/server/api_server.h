#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "http/server.h"
#include "server/access.h"
#include "server/router.h"
#include "server/server_state.h"

namespace bl::server {

// The whole server: HTTP, rights, routes, models.
class ApiServer {
 public:
  struct Options {
    http::ServerOptions http{};
    AccessOptions access{};
  };
  // Opens the sockets. Throws what http::Server throws.
  explicit ApiServer(Options options);
  // Stops at once.
  ~ApiServer();

  ServerState& state() { return state_; }
  const std::vector<std::string>& addresses() const { return http_->addresses(); }
  std::uint16_t port() const { return http_->port(); }

  void start();
  // Takes no more requests, cancels those that run, so that each stream has its last event, and
  // waits for that at most `most`.
  void stop(std::chrono::seconds most);

 private:
  std::optional<http::Response> check_head(const http::Request& head) const;
  void handle(std::shared_ptr<http::Exchange> exchange);
  void run(const Route& route, Call call) const;
  void tick();

  AccessPolicy access_;
  ServerState state_;
  Router router_;
  std::unique_ptr<http::Server> http_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread ticker_;
};

}  // namespace bl::server
