#include "server/api_server.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "server/routes.h"

namespace bl::server {
namespace {

// How often generations are asked whether they have been quiet for long.
constexpr std::chrono::seconds kTick{1};
constexpr std::chrono::milliseconds kLook{20};

}  // namespace

ApiServer::ApiServer(Options options) : access_(std::move(options.access)) {
  add_status_routes(router_, state_);
  add_model_routes(router_, state_);
  add_openai_routes(router_, state_);
  http::Handlers handlers;
  handlers.request = [this](std::shared_ptr<http::Exchange> exchange) {
    handle(std::move(exchange));
  };
  handlers.head = [this](const http::Request& head) { return check_head(head); };
  handlers.fault = [this](int status, std::string_view message, const http::Request& head) {
    return error_response(router_.shape_of(head.path), HttpError(status, "", std::string(message)));
  };
  http_ = std::make_unique<http::Server>(std::move(options.http), std::move(handlers));
}

ApiServer::~ApiServer() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (ticker_.joinable()) ticker_.join();
  http_->stop();
}

void ApiServer::start() {
  http_->start();
  ticker_ = std::thread([this] { tick(); });
}

void ApiServer::tick() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kTick, [&] { return over_; })) {
    lock.unlock();
    state_.tick();
    lock.lock();
  }
}

void ApiServer::stop(std::chrono::seconds most) {
  http_->close_idle();
  const auto end = std::chrono::steady_clock::now() + most;
  while (http_->answering() > 0 && std::chrono::steady_clock::now() < end) {
    state_.cancel_all();
    std::this_thread::sleep_for(kLook);
  }
}

// Everything that the header decides is decided before the body is read.
std::optional<http::Response> ApiServer::check_head(const http::Request& head) const {
  try {
    access_.check_browser(head);
    if (head.method == "OPTIONS") return std::nullopt;
    const Router::Found found = router_.find(head.method, head.path);
    if (found.route != nullptr) {
      access_.check(head, found.route->access);
      return std::nullopt;
    }
    if (head.path == "/" && (head.method == "HEAD" || head.method == "GET")) return std::nullopt;
    if (!found.allowed.empty()) {
      http::Response response = error_response(
          router_.shape_of(head.path),
          HttpError(405, "", fmt::format("{} takes {}", head.path.substr(0, 200), found.allowed)));
      response.fields.push_back({"Allow", found.allowed});
      return response;
    }
    throw HttpError(404, "",
                    fmt::format("there is no route {} {}", head.method.substr(0, 20),
                                head.path.substr(0, 200)));
  } catch (const Error& error) {
    http::Response response = error_response(router_.shape_of(head.path), error);
    for (http::Field& field : access_.cors_fields(head)) response.fields.push_back(field);
    if (response.status == 401) response.fields.push_back({"WWW-Authenticate", "Bearer"});
    return response;
  }
}

void ApiServer::handle(std::shared_ptr<http::Exchange> exchange) {
  const http::Request& request = exchange->request();
  if (request.method == "OPTIONS") {
    return exchange->respond({204, access_.cors_fields(request), {}});
  }
  Router::Found found = router_.find(request.method, request.path);
  if (found.route == nullptr) {  // HEAD / and GET /
    return exchange->respond(json_response(200, {{"name", "bitloom"}}));
  }
  Call call{std::move(exchange), std::move(found.path_values)};
  if (found.route->quick) return run(*found.route, std::move(call));
  const bool posted =
      state_.requests().try_post([this, route = found.route, call] { run(*route, call); });
  if (!posted) {
    call.exchange->respond(error_response(
        found.route->shape,
        HttpError(503, "overloaded", "too many requests are waiting; try again later")));
  }
}

void ApiServer::run(const Route& route, Call call) const {
  try {
    route.handle(call);
  } catch (const Error& error) {
    call.exchange->respond(error_response(route.shape, error));
  } catch (const std::exception& failure) {
    log_warning("{} {} failed: {}", route.method, route.pattern, failure.what());
    call.exchange->respond(error_response(
        route.shape, HttpError(500, "", "internal error; the server's log has more")));
  }
}

}  // namespace bl::server
