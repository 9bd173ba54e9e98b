#include "server/request_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "base/json.h"
#include "server/served_model.h"

namespace bl::server {
namespace {

constexpr std::size_t kMostPath = 500;
constexpr std::size_t kMostPrompt = std::size_t{1} << 20;
constexpr int kClientLeft = 499;

std::string time_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[40];
  const std::size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", std::string_view(text, length), ms.count() % 1000);
}

// Clients choose the method; metrics have those that are usual.
std::string usual_method(const std::string& method) {
  constexpr std::array kUsual{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"};
  return std::find(kUsual.begin(), kUsual.end(), method) != kUsual.end() ? method : "other";
}

// The members of a line that every request has. The query is left out: it may hold a key that was
// put there by mistake.
OrderedJson head_of_line(const Books& books, const http::Request& head, int status) {
  return {{"time", time_now()},
          {"peer", head.peer},
          {"method", head.method.substr(0, 20)},
          {"path", books.access.without_keys(head.path).substr(0, kMostPath)},
          {"status", status}};
}

// Escapes everything that is not printable ASCII, so that no text reaches a terminal as a command.
std::string log_text(const OrderedJson& line) {
  return line.dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
}

}  // namespace

void record_refusal(Books& books, const http::Request& head, int status, const std::string& route) {
  books.metrics.on_request({route, usual_method(head.method), status, 0});
  if (books.log != nullptr) books.log->write(log_text(head_of_line(books, head, status)));
}

RequestRecord::RequestRecord(Args args) : args_(std::move(args)) {}

RequestRecord::~RequestRecord() {
  int status = status_;
  if (!whole_ && gone()) status = kClientLeft;
  if (status == 0) status = 500;  // the exchange answers so when it is let go of
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  Books& books = *args_.books;
  books.metrics.on_request({args_.route, usual_method(request().method), status, seconds});
  if (books.log != nullptr) books.log->write(line(status, seconds));
}

std::string RequestRecord::line(int status, double seconds) const {
  const Books& books = *args_.books;
  OrderedJson line = head_of_line(books, request(), status);
  if (!args_.key_name.empty()) line["key"] = args_.key_name;
  line["bytes"] = bytes_.load();
  line["seconds"] = seconds;
  if (first_byte_ > 0) line["first_byte_seconds"] = first_byte_;
  if (!model_.empty()) {
    line["model"] = model_;
    line["prompt_tokens"] = prompt_tokens_;
    line["cached_tokens"] = cached_tokens_;
    line["generated_tokens"] = generated_tokens_;
    line["finish"] = finish_;
  }
  if (books.log_prompts && !request().body.empty()) {
    line["body"] = books.access.without_keys(request().body.substr(0, kMostPrompt));
  }
  return log_text(line);
}

void RequestRecord::answered(int status) {
  int none = 0;
  if (!status_.compare_exchange_strong(none, status)) return;
  const std::scoped_lock lock(mutex_);
  first_byte_ = std::chrono::duration<double>(Clock::now() - began_).count();
}

void RequestRecord::respond(http::Response response) {
  answered(response.status);
  whole_ = true;
  bytes_ += static_cast<std::int64_t>(response.body.size());
  response.fields.insert(response.fields.end(), args_.fields.begin(), args_.fields.end());
  args_.inner->respond(std::move(response));
}

void RequestRecord::begin(http::Response head) {
  answered(head.status);
  head.fields.insert(head.fields.end(), args_.fields.begin(), args_.fields.end());
  args_.inner->begin(std::move(head));
}

void RequestRecord::write(std::string_view piece) {
  bytes_ += static_cast<std::int64_t>(piece.size());
  args_.inner->write(piece);
}

void RequestRecord::end() {
  whole_ = true;
  args_.inner->end();
}

void RequestRecord::abort() { args_.inner->abort(); }

void RequestRecord::on_answer(const ServedModel& model, const Event& last) {
  Books& books = *args_.books;
  const Usage& usage = last.usage;
  books.metrics.on_answer(model.name(), last);
  const std::int64_t prompt = last.choice == 0 ? usage.prompt_tokens : 0;
  books.limits.count_tokens(args_.key_name, prompt + usage.generated_tokens);
  const bool is_error = last.finish == FinishReason::kError;
  if (is_error && last.code == ErrorCode::kDevice) books.device_failed = true;
  if (!is_error && last.finish != FinishReason::kCancelled) books.device_failed = false;
  const std::scoped_lock lock(mutex_);
  model_ = model.name();
  finish_ = ending_name(*last.finish);
  prompt_tokens_ += prompt;
  cached_tokens_ += last.choice == 0 ? usage.cached_tokens : 0;
  generated_tokens_ += usage.generated_tokens;
}

void RequestRecord::on_embedding(const ServedModel& model, std::int64_t tokens, double seconds) {
  Books& books = *args_.books;
  books.metrics.on_embedding(model.name(), tokens, seconds);
  books.limits.count_tokens(args_.key_name, tokens);
  books.device_failed = false;
  const std::scoped_lock lock(mutex_);
  model_ = model.name();
  finish_ = ending_name(FinishReason::kEndToken);
  prompt_tokens_ += tokens;
}

}  // namespace bl::server
