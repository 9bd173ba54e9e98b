#include "http/connection.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/field.hpp>
#include <utility>

#include "base/log.h"

namespace bl::http {
namespace {

namespace beast_http = boost::beast::http;
using beast_http::error;

// What a client may send ahead while its request is answered.
constexpr std::size_t kMostAhead = std::size_t{64} << 10;
// A body that is refused by its header is read to its end, so that the connection can be kept, if
// it is not longer than this.
constexpr std::uint64_t kShortBody = std::uint64_t{1} << 20;
constexpr std::size_t kMostDrained = std::size_t{1} << 20;
constexpr std::chrono::seconds kDrainTime{2};
constexpr std::size_t kMostChunkExtension = 256;
constexpr std::size_t kMostTarget = std::size_t{16} << 10;

struct Fault {
  int status;
  const char* message;
};

bool has_bare_line_feed(boost::beast::string_view text) {
  for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1)) {
    if (at == 0 || text[at - 1] != '\r') return true;
  }
  return false;
}

boost::beast::string_view text_of(const boost::beast::flat_buffer& buffer) {
  return {static_cast<const char*>(buffer.data().data()), buffer.size()};
}

Fault fault_of(error_code code) {
  if (code == error::header_limit) return {431, "the header is too large"};
  if (code == error::body_limit) return {413, "the body is too large"};
  if (code == error::bad_version) return {505, "the version of HTTP is not 1.1 or 1.0"};
  return {400, "this is not a request of HTTP/1.1"};
}

bool has_control_byte(boost::beast::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && byte != '\t') || byte == 0x7f;
  });
}

template <class Fields>
std::size_t count_of(const Fields& fields, beast_http::field name) {
  return static_cast<std::size_t>(fields.count(name));
}

}  // namespace

Connection::Connection(std::shared_ptr<ConnectionContext> context,
                       std::unique_ptr<Transport> transport, std::string peer)
    : context_(std::move(context)),
      transport_(std::move(transport)),
      peer_(std::move(peer)),
      timer_(transport_->executor()),
      buffer_(kMostAhead + incoming_.size()) {
  context_->connections.fetch_add(1, std::memory_order_relaxed);
  on_chunk_ = [this](std::uint64_t size, boost::beast::string_view extensions, error_code& code) {
    announced_ += size;
    if (extensions.size() > kMostChunkExtension || has_control_byte(extensions)) {
      code = error::bad_chunk_extension;
    }
  };
}

Connection::~Connection() {
  context_->body_bytes.fetch_sub(counted_body_, std::memory_order_relaxed);
  context_->connections.fetch_sub(1, std::memory_order_relaxed);
}

void Connection::start() {
  asio::post(transport_->executor(), [self = shared_from_this()] {
    self->wait(self->context_->limits.header_time);
    self->transport_->handshake([self](error_code code) {
      if (code) return self->close();
      self->next_request();
    });
  });
}

void Connection::next_request() {
  if (state_ == State::kClosed) return;
  state_ = State::kReading;
  header_checked_ = over_ = false;
  refusal_.reset();
  announced_ = 0;
  parser_.emplace();
  parser_->header_limit(context_->limits.header_bytes);
  parser_->body_limit(context_->limits.body_bytes);
  parser_->on_chunk_header(on_chunk_);
  if (buffer_.size() == 0) {
    if (closing()) return close();
    buffer_.shrink_to_fit();
    wait(context_->limits.idle_time);
    return read();
  }
  parse();
}

void Connection::read() {
  if (reading_ || state_ == State::kClosed || buffer_.size() >= kMostAhead) return;
  reading_ = true;
  transport_->read_some(asio::buffer(incoming_),
                        [self = shared_from_this()](error_code code, std::size_t bytes) {
                          self->reading_ = false;
                          self->on_read(code, bytes);
                        });
}

void Connection::on_read(error_code code, std::size_t bytes) {
  if (state_ == State::kClosed) return;
  if (code) return lost();
  buffer_.commit(asio::buffer_copy(buffer_.prepare(bytes), asio::buffer(incoming_, bytes)));
  switch (state_) {
    case State::kReading:
      return parse();
    case State::kAnswering:
      return read();
    case State::kDraining:
      drained_ += buffer_.size();
      buffer_.consume(buffer_.size());
      if (drained_ > kMostDrained) return close();
      return read();
    case State::kClosed:
      return;
  }
}

void Connection::parse() {
  if (!parser_->got_some()) wait(context_->limits.header_time);
  while (state_ == State::kReading && buffer_.size() > 0) {
    error_code code = error::need_more;
    if (!has_cut_last_chunk()) buffer_.consume(parser_->put(buffer_.data(), code));
    if (code == error::need_more) {
      // The buffer holds the beginning of a line of the header, a chunk or the trailers. A bare
      // line feed there never becomes right, and the parser would wait for more.
      if (buffer_.size() < kMostAhead && !has_bare_line_feed(text_of(buffer_))) break;
      code = parser_->is_header_done() ? error::bad_chunk : error::header_limit;
    }
    if (code) {
      const bool garbled = has_bare_line_feed(text_of(buffer_));
      const Fault fault = fault_of(garbled ? error_code(error::bad_line_ending) : code);
      return refuse(fault.status, fault.message);
    }
    if (parser_->is_header_done()) {
      if (!header_checked_ && !check_header()) return;
      count_body();
      if (state_ != State::kReading) return;
    }
    if (parser_->is_done()) return begin_exchange();
  }
  if (parser_->is_header_done()) wait(context_->limits.progress_time);
  read();
}

// Whether all that is there behind the body is the last chunk's line and one byte. Once Beast has
// seen that line, it asserts that at least two bytes follow.
bool Connection::has_cut_last_chunk() const {
  const boost::beast::string_view text = text_of(buffer_);
  return text.size() == 4 && text.starts_with("0\r\n") && parser_->is_header_done() &&
         parser_->chunked() && parser_->get().body().size() == announced_;
}

void Connection::count_body() {
  const std::size_t now = parser_->get().body().size();
  const std::size_t more = now - counted_body_;
  counted_body_ = now;
  const std::size_t all = context_->body_bytes.fetch_add(more, std::memory_order_relaxed) + more;
  if (all > context_->limits.total_body_bytes) {
    refuse(503, "too many large requests are being received; try again");
  }
}

Request Connection::head_of_parser() const {
  Request head;
  head.peer = peer_;
  head.over_unix_socket = peer_ == "unix";
  if (!parser_) return head;
  const auto& message = parser_->get();
  head.has_version_1_1 = message.version() >= 11;
  head.method = std::string(message.method_string());
  for (const auto& field : message) {
    head.fields.push_back(
        {lower_case(std::string_view(field.name_string().data(), field.name_string().size())),
         std::string(field.value())});
  }
  return head;
}

// Returns false where the request is refused.
bool Connection::check_header() {
  header_checked_ = true;
  const auto& message = parser_->get();
  const auto refused = [&](int status, std::string_view why) {
    refuse(status, why);
    return false;
  };
  const std::size_t lengths = count_of(message, beast_http::field::content_length);
  const std::size_t codings = count_of(message, beast_http::field::transfer_encoding);
  if (message.version() != 11 && message.version() != 10) {
    return refused(505, "the version of HTTP is not 1.1 or 1.0");
  }
  if (lengths + codings > 1) return refused(400, "the length of the body is given twice");
  if (codings == 1) {
    const auto coding = message[beast_http::field::transfer_encoding];
    if (message.version() == 10) return refused(400, "HTTP/1.0 has no Transfer-Encoding");
    if (!equal_without_case({coding.data(), coding.size()}, "chunked")) {
      return refused(501, "the only Transfer-Encoding that is understood is chunked");
    }
  }
  const std::size_t hosts = count_of(message, beast_http::field::host);
  if (hosts > 1 || (hosts == 0 && message.version() == 11)) {
    return refused(400, "HTTP/1.1 needs one Host");
  }
  if (message.target().size() > kMostTarget) return refused(414, "the address is too long");
  Request head = head_of_parser();
  if (!read_target(std::string_view(message.target().data(), message.target().size()), head)) {
    return refused(400, "the address of the request is malformed");
  }
  const std::string* expectation = head.field("expect");
  if (expectation != nullptr && !equal_without_case(*expectation, "100-continue")) {
    return refused(417, "the only expectation that is understood is 100-continue");
  }
  if (context_->handlers.head) refusal_ = context_->handlers.head(head);
  if (parser_->is_done()) return true;
  if (refusal_) {
    const auto length = parser_->content_length();
    if (expectation == nullptr && length && *length <= kShortBody) return true;
    answer_and_close(*refusal_);
    return false;
  }
  if (expectation != nullptr && message.version() == 11) send("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

void Connection::begin_exchange() {
  Request request = head_of_parser();
  auto& message = parser_->get();
  read_target(std::string_view(message.target().data(), message.target().size()), request);
  request.body = std::move(message.body());
  context_->body_bytes.fetch_sub(counted_body_, std::memory_order_relaxed);
  counted_body_ = 0;
  parser_.reset();
  state_ = State::kAnswering;
  timer_.cancel();
  exchange_ = std::make_shared<ConnectionExchange>(shared_from_this(), std::move(request));
  context_->answering.fetch_add(1, std::memory_order_relaxed);
  read();
  const std::shared_ptr<ConnectionExchange> exchange = exchange_;
  if (refusal_) return exchange->respond(std::move(*refusal_));
  hand_over(exchange);
}

void Connection::hand_over(const std::shared_ptr<ConnectionExchange>& exchange) {
  // The handler's own pointer, whose end is noticed. The connection may be gone by then.
  std::shared_ptr<Exchange> handle(exchange.get(), [exchange, context = context_](Exchange*) {
    exchange->forget(context->handlers);
  });
  try {
    context_->handlers.request(std::move(handle));
  } catch (const std::exception& failure) {
    log_warning("a request handler failed: {}", failure.what());
    exchange->forget(context_->handlers);
  }
}

void Connection::refuse(int status, std::string_view message) {
  Request head = head_of_parser();
  if (parser_) {
    const auto target = parser_->get().target();
    read_target(std::string_view(target.data(), target.size()), head);
  }
  answer_and_close(context_->handlers.fault(status, message, head));
}

// For requests that are not read to their end: what follows on the connection cannot be understood.
void Connection::answer_and_close(const Response& response) {
  state_ = State::kDraining;
  std::string text = "HTTP/1.1 " + std::to_string(response.status) + " " +
                     std::string(reason_of(response.status)) + "\r\n";
  for (const Field& field : response.fields) text += field.name + ": " + field.value + "\r\n";
  text += "Content-Length: " + std::to_string(response.body.size()) +
          "\r\nConnection: close\r\n\r\n" + response.body;
  close_ = true;
  send(std::move(text));
  buffer_.consume(buffer_.size());
  read();
}

void Connection::wake(std::shared_ptr<ConnectionExchange> exchange) {
  asio::post(transport_->executor(), [self = shared_from_this(), exchange = std::move(exchange)] {
    if (self->exchange_ != exchange || self->state_ != State::kAnswering) return;
    ConnectionExchange::News news = exchange->take();
    if (news.aborted) return self->lost();
    self->over_ |= news.over;
    self->close_ |= news.close;
    self->send(std::move(news.bytes));
  });
}

void Connection::send(std::string bytes) {
  if (outgoing_.empty()) {
    outgoing_ = std::move(bytes);
  } else {
    outgoing_ += bytes;
  }
  flush();
}

void Connection::flush() {
  if (writing_ || state_ == State::kClosed) return;
  if (written_ == in_flight_.size()) {
    in_flight_.clear();
    in_flight_.swap(outgoing_);
    written_ = 0;
  }
  if (in_flight_.empty()) {
    if (state_ == State::kAnswering) {
      timer_.cancel();
      if (over_) finish_exchange();
    } else if (state_ == State::kDraining) {
      drain();
    }
    return;
  }
  writing_ = true;
  if (state_ != State::kReading) wait(context_->limits.progress_time);
  transport_->write(asio::buffer(in_flight_.data() + written_, in_flight_.size() - written_),
                    [self = shared_from_this()](error_code code, std::size_t bytes) {
                      self->writing_ = false;
                      self->on_written(code, bytes);
                    });
}

void Connection::on_written(error_code code, std::size_t bytes) {
  if (state_ == State::kClosed) return;
  if (code) return lost();
  written_ += bytes;
  const std::shared_ptr<ConnectionExchange> exchange = exchange_;
  if (exchange) exchange->sent(bytes);
  flush();
}

void Connection::finish_exchange() {
  exchange_->drop_watcher();
  exchange_.reset();
  context_->answering.fetch_sub(1, std::memory_order_relaxed);
  in_flight_ = {};
  written_ = 0;
  if (close_ || closing()) {
    state_ = State::kDraining;
    return drain();
  }
  next_request();
}

// Everything is sent. Closing at once could take the answer back from a client that still sends.
void Connection::drain() {
  transport_->finish_sending();
  buffer_.consume(buffer_.size());
  wait(kDrainTime);
  read();
}

void Connection::lost() {
  if (const std::shared_ptr<ConnectionExchange> exchange = std::exchange(exchange_, nullptr)) {
    context_->answering.fetch_sub(1, std::memory_order_relaxed);
    exchange->leave();
  }
  close();
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  timer_.cancel();
  transport_->close();
  if (exchange_) lost();
}

void Connection::close_idle() {
  asio::post(transport_->executor(), [self = shared_from_this()] {
    if (self->state_ == State::kReading && (!self->parser_ || !self->parser_->got_some())) {
      self->close();
    }
  });
}

void Connection::wait(std::chrono::milliseconds time) {
  timer_.expires_after(time);
  timer_.async_wait([self = weak_from_this()](error_code code) {
    const auto connection = self.lock();
    if (code || connection == nullptr) return;
    // It may have been set anew after this call was on its way.
    if (connection->timer_.expiry() <= asio::steady_timer::clock_type::now()) connection->on_time();
  });
}

void Connection::on_time() {
  if (state_ == State::kReading && parser_ && parser_->got_some()) {
    return refuse(408, "the request did not arrive in time");
  }
  lost();
}

}  // namespace bl::http
