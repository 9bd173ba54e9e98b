#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "http/connection.h"

namespace bl::http {
namespace {

// A producer that has stopped is told to go on below this.
constexpr std::size_t kFewUnsent = std::size_t{16} << 10;

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  return {text, std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

bool has_token(const std::string* value, std::string_view token) {
  if (value == nullptr) return false;
  std::string_view rest = *value;
  while (!rest.empty()) {
    std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    while (!part.empty() && (part.front() == ' ' || part.front() == '\t')) part.remove_prefix(1);
    while (!part.empty() && (part.back() == ' ' || part.back() == '\t')) part.remove_suffix(1);
    if (equal_without_case(part, token)) return true;
  }
  return false;
}

bool wants_keep_alive(const Request& request) {
  const std::string* connection = request.field("connection");
  return request.has_version_1_1 ? !has_token(connection, "close")
                                 : has_token(connection, "keep-alive");
}

}  // namespace

ConnectionExchange::ConnectionExchange(std::shared_ptr<Connection> connection, Request request)
    : request_(std::move(request)),
      keep_alive_(wants_keep_alive(request_)),
      connection_(connection) {}

ConnectionExchange::~ConnectionExchange() = default;

std::string ConnectionExchange::head_of(const Response& response, bool streamed) {
  const std::shared_ptr<Connection> connection = connection_.lock();
  const bool endless = streamed && !request_.has_version_1_1;
  const bool close = !keep_alive_ || endless || connection == nullptr || connection->closing();
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_of(response.status));
  for (const Field& field : response.fields) {
    // A value with a line break would begin a field of the client's choice.
    const std::string_view value =
        std::string_view(field.value)
            .substr(0, field.value.find_first_of(std::string_view("\r\n\0", 3)));
    fmt::format_to(std::back_inserter(head), "{}: {}\r\n", field.name, value);
  }
  fmt::format_to(std::back_inserter(head), "Date: {}\r\n", date_now());
  if (close) head += "Connection: close\r\n";
  if (!close && !request_.has_version_1_1) head += "Connection: keep-alive\r\n";
  const bool bodiless = response.status == 204 || response.status == 304;
  if (!streamed && !bodiless) {
    fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\n", response.body.size());
  }
  chunked_ = streamed && !endless;
  if (chunked_) head += "Transfer-Encoding: chunked\r\n";
  news_.close = close;
  return head + "\r\n";
}

void ConnectionExchange::add(std::string_view bytes) {
  news_.bytes += bytes;
  unsent_.fetch_add(bytes.size(), std::memory_order_relaxed);
}

void ConnectionExchange::respond(Response response) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::kOpen) return;
  stage_ = Stage::kOver;
  add(head_of(response, false));
  if (request_.method != "HEAD") add(response.body);
  news_.over = true;
  schedule(lock);
}

void ConnectionExchange::begin(Response head) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::kOpen) return;
  stage_ = Stage::kStreaming;
  add(head_of(head, true));
  if (head.body.empty()) return schedule(lock);
  lock.unlock();
  write(head.body);
}

void ConnectionExchange::write(std::string_view piece) {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::kStreaming || piece.empty() || request_.method == "HEAD") return;
  if (chunked_) {
    add(fmt::format("{:x}\r\n", piece.size()));
    add(piece);
    add("\r\n");
  } else {
    add(piece);
  }
  schedule(lock);
}

void ConnectionExchange::end() {
  std::unique_lock lock(mutex_);
  if (stage_ != Stage::kStreaming) return;
  stage_ = Stage::kOver;
  if (chunked_ && request_.method != "HEAD") add("0\r\n\r\n");
  news_.over = true;
  schedule(lock);
}

void ConnectionExchange::abort() {
  std::unique_lock lock(mutex_);
  if (stage_ == Stage::kOver) return;
  stage_ = Stage::kOver;
  news_.over = news_.aborted = true;
  schedule(lock);
}

void ConnectionExchange::forget(const Handlers& handlers) {
  bool open = false;
  {
    const std::scoped_lock lock(mutex_);
    open = stage_ == Stage::kOpen;
  }
  // Nobody is told of a fault where the client has left.
  if (open && !gone()) {
    return respond(handlers.fault(500, "the request was not answered", request_));
  }
  abort();
}

void ConnectionExchange::schedule(std::unique_lock<std::mutex>& lock) {
  if (scheduled_) return;
  scheduled_ = true;
  lock.unlock();
  if (const auto connection = connection_.lock()) connection->wake(shared_from_this());
}

ConnectionExchange::News ConnectionExchange::take() {
  const std::scoped_lock lock(mutex_);
  scheduled_ = false;
  News news = std::move(news_);
  news_ = {.close = news.close};
  return news;
}

void ConnectionExchange::sent(std::size_t bytes) {
  const std::size_t before = unsent_.fetch_sub(bytes, std::memory_order_relaxed);
  if (before - bytes < kFewUnsent) tell_watcher();
}

void ConnectionExchange::leave() {
  gone_.store(true, std::memory_order_relaxed);
  tell_watcher();
  drop_watcher();
}

void ConnectionExchange::watch(std::function<void()> watcher) {
  {
    const std::scoped_lock lock(mutex_);
    if (!gone()) {
      watcher_ = std::move(watcher);
      return;
    }
  }
  // leave() has dropped its watcher already, and this one may hold the exchange: it is not kept.
  if (watcher) watcher();
}

void ConnectionExchange::tell_watcher() {
  std::function<void()> watcher;
  {
    const std::scoped_lock lock(mutex_);
    watcher = watcher_;
  }
  if (watcher) watcher();
}

void ConnectionExchange::drop_watcher() {
  std::function<void()> watcher;  // destroyed without the lock: it may hold the exchange's maker
  const std::scoped_lock lock(mutex_);
  watcher.swap(watcher_);
}

}  // namespace bl::http
