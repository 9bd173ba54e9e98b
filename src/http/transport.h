#pragma once
// The socket below a connection: TCP, TLS over TCP, or a Unix socket, behind one interface, so that
// the connection's code is compiled once.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "http/server.h"

namespace bl::http {

namespace asio = boost::asio;
using boost::system::error_code;

// All functions are called on the strand of executor(), and call back there. At most one read and
// one write are under way at a time.
class Transport {
 public:
  using Transferred = std::function<void(error_code, std::size_t)>;

  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual asio::any_io_executor executor() = 0;
  // Completes the TLS handshake; plain sockets are ready at once.
  virtual void handshake(std::function<void(error_code)> done) = 0;
  virtual void read_some(asio::mutable_buffer to, Transferred done) = 0;
  virtual void write(asio::const_buffer from, Transferred done) = 0;  // some of it
  // Tells the other end that nothing more will be sent. It may still send.
  virtual void finish_sending() = 0;
  // Reads and writes under way fail. May be called again.
  virtual void close() = 0;
};

// A socket that listens. Calls `accepted` for each connection until it is closed.
class Acceptor {
 public:
  using Accepted = std::function<void(std::unique_ptr<Transport>, std::string peer)>;
  Acceptor() = default;
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  virtual ~Acceptor() = default;

  // All that follows happens on this executor.
  virtual asio::any_io_executor executor() = 0;
  virtual void accept(Accepted accepted) = 0;
  virtual void close() = 0;
  virtual std::string address() const = 0;  // as a URL
  virtual std::uint16_t port() const = 0;   // 0: a Unix socket
};

}  // namespace bl::http
