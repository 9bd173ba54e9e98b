#pragma once
#include <array>
#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "http/server.h"
#include "http/transport.h"

namespace bl::http {

class Connection;

// What the connections of a server share.
struct ConnectionContext {
  Limits limits{};
  Handlers handlers{};
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> answering{0};
  std::atomic<std::size_t> body_bytes{0};  // of requests that are being received
  std::atomic<bool> closing{false};
};

// The answering side of one request. It outlives the connection where the handler keeps it.
class ConnectionExchange : public Exchange,
                           public std::enable_shared_from_this<ConnectionExchange> {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, Request request);
  ~ConnectionExchange() override;

  const Request& request() const override { return request_; }
  void respond(Response response) override;
  void begin(Response head) override;
  void write(std::string_view piece) override;
  void end() override;
  void abort() override;
  std::size_t unsent() const override { return unsent_.load(std::memory_order_relaxed); }
  bool gone() const override { return gone_.load(std::memory_order_relaxed); }
  void watch(std::function<void()> watcher) override;

  // For the connection, on its strand.
  struct News {
    std::string bytes{};
    bool over = false;
    bool aborted = false;
    bool close = false;  // the answer's end is the connection's end
  };
  News take();
  void sent(std::size_t bytes);
  void leave();  // the client has gone
  void drop_watcher();
  // The handler has let go of it. An answer that is not over ends here.
  void forget(const Handlers& handlers);

 private:
  enum class Stage { kOpen, kStreaming, kOver };
  void add(std::string_view bytes);  // the caller holds mutex_
  std::string head_of(const Response& response, bool streamed);
  void schedule(std::unique_lock<std::mutex>& lock);
  void tell_watcher();

  const Request request_;
  const bool keep_alive_;  // as far as the client is concerned
  std::weak_ptr<Connection> connection_;
  std::atomic<std::size_t> unsent_{0};
  std::atomic<bool> gone_{false};
  std::mutex mutex_;
  Stage stage_ = Stage::kOpen;
  bool chunked_ = false;
  bool scheduled_ = false;
  News news_;
  std::function<void()> watcher_;
};

// One connection, on a strand of its own. It keeps itself alive while an operation is under way.
//
// Invariant: at most one read is under way, whatever the state, so the end of the client's stream
// is seen while its request is answered. What it sends meanwhile stays in the buffer, which is
// bounded: a client that fills it is not read any more until its answer is over.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `context` keeps alive what the transport runs on.
  Connection(std::shared_ptr<ConnectionContext> context, std::unique_ptr<Transport> transport,
             std::string peer);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  // Closes it now if no request is being received or answered, and otherwise behind the answer.
  void close_idle();
  void close();
  // Looks at what an exchange has written; any thread.
  void wake(std::shared_ptr<ConnectionExchange> exchange);
  bool closing() const { return context_->closing.load(std::memory_order_relaxed); }
  const std::string& peer() const { return peer_; }

 private:
  enum class State { kReading, kAnswering, kDraining, kClosed };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void next_request();
  void read();
  void on_read(error_code error, std::size_t bytes);
  void parse();
  bool check_header();
  void begin_exchange();
  void hand_over(const std::shared_ptr<ConnectionExchange>& exchange);
  void refuse(int status, std::string_view message);
  void answer_and_close(const Response& response);
  void send(std::string bytes);
  void flush();
  void on_written(error_code error, std::size_t bytes);
  void finish_exchange();
  void drain();
  void lost();
  void wait(std::chrono::milliseconds time);
  void on_time();
  Request head_of_parser() const;
  bool has_cut_last_chunk() const;
  void count_body();

  std::shared_ptr<ConnectionContext> context_;
  std::unique_ptr<Transport> transport_;
  std::string peer_;
  asio::steady_timer timer_;
  // A read is under way while the buffer is consumed, so it needs room of its own.
  std::array<char, 8192> incoming_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  // Beast calls it with the extensions of each chunk, and keeps a reference to it.
  std::function<void(std::uint64_t, boost::beast::string_view, error_code&)> on_chunk_;
  std::uint64_t announced_ = 0;  // bytes of the body that the lines of chunks have promised
  State state_ = State::kReading;
  bool reading_ = false;
  bool writing_ = false;
  bool header_checked_ = false;
  std::optional<Response> refusal_;  // by the head handler; answered behind the body
  std::size_t counted_body_ = 0;
  std::size_t drained_ = 0;
  std::string outgoing_;   // waits
  std::string in_flight_;  // is being written
  std::size_t written_ = 0;
  bool over_ = false;   // the exchange has said all
  bool close_ = false;  // the connection ends with what is being sent
  std::shared_ptr<ConnectionExchange> exchange_;
};

}  // namespace bl::http
