#include "server/api_server.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "server/routes.h"
#include "server/status_routes.h"

namespace bl::server {
namespace {

// How often generations are asked whether they have been quiet for long.
constexpr std::chrono::seconds kTick{1};
constexpr std::chrono::milliseconds kLook{20};
constexpr const char* kNoRoute = "none";

// Bodies are read as they are. A small compressed body may unfold to any size.
void refuse_encoded_body(const http::Request& head) {
  const std::string* coding = head.field("content-encoding");
  if (coding == nullptr || http::equal_without_case(*coding, "identity")) return;
  throw HttpError(415, "unsupported_content_encoding",
                  "compressed bodies are not read; send the body without Content-Encoding");
}

// Requests that compute something count against the limits of their key; all of them are POSTs.
bool is_limited(const Route& route, const Rights& rights) {
  return route.method == "POST" && !route.quick && route.access != Access::kOpen && !rights.admin;
}

}  // namespace

ApiServer::ApiServer(Options options)
    : books_(std::make_shared<Books>(std::move(options.access), options.limits)),
      health_(state_, books_->device_failed, options.health) {
  state_.configure(std::move(options.models), options.folders);
  if (!options.access_log.empty()) books_->log = std::make_unique<AccessLog>(options.access_log);
  books_->log_prompts = options.log_prompts;
  add_status_routes(router_, StatusSources{.state = state_,
                                           .health = health_,
                                           .books = books_,
                                           .metrics = options.metrics,
                                           .slots = options.slots});
  add_openai_routes(router_, state_);
  add_responses_routes(router_, state_);
  add_anthropic_routes(router_, state_);
  add_ollama_routes(router_, state_);
  add_ollama_model_routes(router_, state_);
  add_llama_routes(router_, state_);
  add_kobold_routes(router_, state_);
  add_embedding_routes(router_, state_);
  add_request_routes(router_, state_);
  add_model_routes(router_, state_);
  add_admin_routes(router_, state_);
  add_adapter_routes(router_, state_);
  add_page_routes(router_);
  http::Handlers handlers;
  handlers.request = [this](std::shared_ptr<http::Exchange> exchange) {
    handle(std::move(exchange));
  };
  handlers.head = [this](const http::Request& head) { return check_head(head); };
  handlers.fault = [this](int status, std::string_view message, const http::Request& head) {
    record_refusal(*books_, head, status, kNoRoute);
    return error_response(router_.shape_of(head.path), HttpError(status, "", std::string(message)));
  };
  http_ = std::make_unique<http::Server>(std::move(options.http), std::move(handlers));
}

ApiServer::~ApiServer() {
  state_.registry().stop();
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
  health_.start();
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
  const char* route = kNoRoute;
  try {
    books_->access.check_browser(head);
    if (head.method == "OPTIONS") return std::nullopt;
    const Router::Found found = router_.find(head.method, head.path);
    if (found.route != nullptr) {
      route = found.route->pattern.c_str();
      books_->access.check(head, found.route->access);
      refuse_encoded_body(head);
      return std::nullopt;
    }
    if (!found.allowed.empty()) {
      throw HttpError(405, "", fmt::format("{} takes {}", head.path.substr(0, 200), found.allowed));
    }
    throw HttpError(404, "",
                    fmt::format("there is no route {} {}", head.method.substr(0, 20),
                                head.path.substr(0, 200)));
  } catch (const Error& error) {
    http::Response response = error_response(router_.shape_of(head.path), error);
    for (http::Field& field : books_->access.cors_fields(head)) {
      response.fields.push_back(std::move(field));
    }
    if (response.status == 401) response.fields.push_back({"WWW-Authenticate", "Bearer"});
    if (response.status == 405) {
      response.fields.push_back({"Allow", router_.methods_of(head.path)});
    }
    record_refusal(*books_, head, response.status, route);
    return response;
  }
}

void ApiServer::handle(std::shared_ptr<http::Exchange> exchange) {
  const http::Request& request = exchange->request();
  Router::Found found = router_.find(request.method, request.path);
  const bool is_options = request.method == "OPTIONS";
  Rights rights = books_->access.rights_of(request);
  RequestRecord::Args args{.books = books_, .inner = exchange, .route = kNoRoute};
  args.key_name = rights.key_name;
  args.fields = books_->access.cors_fields(request);
  std::string refusal;
  if (found.route != nullptr && !is_options) {
    args.route = found.route->pattern;
    if (is_limited(*found.route, rights)) {
      KeyLimits::Decision decision = books_->limits.admit(rights.key_name);
      refusal = std::move(decision.refusal);
      args.place = std::move(decision.place);
      for (http::Field& field : decision.fields) args.fields.push_back(std::move(field));
    }
  }
  exchange.reset();
  Call call{std::make_shared<RequestRecord>(std::move(args)), std::move(found.path_values),
            std::move(rights)};
  if (is_options) {
    return call.exchange->respond({200, {{"Allow", router_.methods_of(call.request().path)}}, {}});
  }
  BL_CHECK(found.route != nullptr);  // check_head() has refused the others
  if (!refusal.empty()) {
    return call.exchange->respond(
        error_response(found.route->shape, HttpError(429, "rate_limit_exceeded", refusal)));
  }
  if (found.route->quick) return run(*found.route, call);
  post(*found.route, std::move(call), nullptr);
}

void ApiServer::post(const Route& route, Call call, std::shared_ptr<ServedModel> model) {
  const bool posted = state_.requests().try_post(
      [this, &route, call, model = std::move(model)] { run(route, call); });
  if (!posted) {
    call.exchange->respond(error_response(
        route.shape,
        HttpError(503, "overloaded", "too many requests are waiting; try again later")));
  }
}

// Has the route run again when the model is loaded. A client that leaves waits no longer.
void ApiServer::wait_for_model(const Route& route, const Call& call, const std::string& name) {
  struct Waiting {
    std::atomic<ModelRegistry::Ticket> ticket{0};
    std::atomic<bool> gone{false};
  };
  const auto waiting = std::make_shared<Waiting>();
  const auto leave = [this, waiting] {
    waiting->gone = true;
    state_.registry().stop_waiting(waiting->ticket);
  };
  const std::weak_ptr<http::Exchange> exchange = call.exchange;
  call.exchange->watch([exchange, leave] {
    const auto held = exchange.lock();
    if (held != nullptr && held->gone()) leave();
  });
  waiting->ticket = state_.registry().when_loaded(
      name,
      [this, &route, call](ModelRegistry::Lease model, const std::shared_ptr<const Error>& error) {
        call.exchange->watch(nullptr);
        if (error != nullptr) return call.exchange->respond(error_response(route.shape, *error));
        post(route, call, std::move(model));
      });
  // The client may have left before there was a ticket.
  if (waiting->gone || call.exchange->gone()) leave();
}

void ApiServer::run(const Route& route, const Call& call) {
  try {
    try {
      route.handle(call);
    } catch (const ModelPending& pending) {
      wait_for_model(route, call, pending.name());
    }
  } catch (const Error& error) {
    call.exchange->respond(error_response(route.shape, error));
  } catch (const std::exception& failure) {
    log_warning("{} {} failed: {}", route.method, route.pattern, failure.what());
    call.exchange->respond(error_response(
        route.shape, HttpError(500, "", "internal error; the server's log has more")));
  }
}

}  // namespace bl::server
