#pragma once
// An HTTP/1.1 server that knows nothing of what it serves: sockets, framing, limits and time-outs.
//
// Requests are handed to one handler, each as an Exchange. A connection's requests are handled one
// after another in order, also pipelined ones. Every byte that a client sends is bounded in number
// and time. While an answer is being made the connection is still read, so that a client which
// leaves is noticed at once.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/exchange.h"

namespace bl::http {

struct Limits {
  std::uint32_t header_bytes = 64 << 10;           // the request line and all fields; trailers too
  std::size_t body_bytes = std::size_t{64} << 20;  // of one request
  std::size_t total_body_bytes = std::size_t{1} << 30;  // of all requests that are being received
  std::size_t connections = 8192;
  std::chrono::seconds header_time{30};    // from a request's first byte to the end of its header
  std::chrono::seconds progress_time{60};  // between two pieces of a body, sent or received
  std::chrono::seconds idle_time{120};     // between two requests of a connection
};

struct ServerOptions {
  // Each is a host name or address, or the path of a Unix socket, which ends in ".sock".
  std::vector<std::string> hosts{"127.0.0.1"};
  std::uint16_t port = 8080;      // 0: any free one
  std::string tls_certificate{};  // PEM files; both or none
  std::string tls_key{};
  int threads = 2;
  Limits limits{};
};

struct Handlers {
  // Called with the whole request. Must not block.
  std::function<void(std::shared_ptr<Exchange>)> request;
  // Called when the header has arrived and the body has not. Returns an answer where the request is
  // refused without reading its body. May be empty.
  std::function<std::optional<Response>(const Request& head)> head{};
  // Makes the answer to a request that could not be read. `head` has what is known of it.
  std::function<Response(int status, std::string_view message, const Request& head)> fault;
};

class Server {
 public:
  // Opens the sockets, but accepts nothing yet. Throws kIo where an address cannot be had, and
  // kInvalidFile where certificate or key are wrong.
  Server(ServerOptions options, Handlers handlers);
  ~Server();

  // "http://127.0.0.1:8080", one for each host.
  const std::vector<std::string>& addresses() const;
  std::uint16_t port() const;

  void start();
  // Accepts no more connections and closes idle ones; a connection that is being answered is closed
  // behind its answer. Returns at once.
  void close_idle();
  // Closes all connections, and ends the threads.
  void stop();

  std::size_t connections() const;
  std::size_t answering() const;  // requests that are being answered

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace bl::http
