#include "http/server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/strand.hpp>
#include <filesystem>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "base/thread_name.h"
#include "http/connection.h"

namespace bl::http {
namespace {

using Tcp = asio::ip::tcp;
using Unix = asio::local::stream_protocol;
using TlsStream = asio::ssl::stream<Tcp::socket>;

constexpr std::chrono::milliseconds kShortageTime{100};

template <class Socket>
class PlainTransport : public Transport {
 public:
  explicit PlainTransport(Socket socket) : socket_(std::move(socket)) {}
  asio::any_io_executor executor() override { return socket_.get_executor(); }
  void handshake(std::function<void(error_code)> done) override { done({}); }
  void read_some(asio::mutable_buffer to, Transferred done) override {
    socket_.async_read_some(to, std::move(done));
  }
  void write(asio::const_buffer from, Transferred done) override {
    socket_.async_write_some(from, std::move(done));
  }
  void finish_sending() override {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
};

class TlsTransport : public Transport {
 public:
  TlsTransport(Tcp::socket socket, asio::ssl::context& context)
      : stream_(std::move(socket), context) {}
  asio::any_io_executor executor() override { return stream_.get_executor(); }
  void handshake(std::function<void(error_code)> done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, std::move(done));
  }
  void read_some(asio::mutable_buffer to, Transferred done) override {
    stream_.async_read_some(to, std::move(done));
  }
  void write(asio::const_buffer from, Transferred done) override {
    stream_.async_write_some(from, std::move(done));
  }
  void finish_sending() override {
    error_code ignored;
    // The alert that ends a TLS stream is left out: it would have to wait for the read under way.
    stream_.next_layer().shutdown(Tcp::socket::shutdown_send, ignored);
  }
  void close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  TlsStream stream_;
};

std::string shown(const Tcp::endpoint& at) {
  const auto address = at.address();
  return address.is_v6() ? fmt::format("[{}]:{}", address.to_string(), at.port())
                         : fmt::format("{}:{}", address.to_string(), at.port());
}

// Where the system is short of descriptors or memory, accepting again at once would only spin.
template <class Protocol>
class SocketAcceptor : public Acceptor {
 public:
  using Make = std::function<std::unique_ptr<Transport>(typename Protocol::socket)>;
  SocketAcceptor(asio::io_context& io, typename Protocol::acceptor acceptor, Make make,
                 std::string address)
      : io_(io),
        acceptor_(std::move(acceptor)),
        pause_(acceptor_.get_executor()),
        make_(std::move(make)),
        address_(std::move(address)) {}

  asio::any_io_executor executor() override { return acceptor_.get_executor(); }
  void accept(Accepted accepted) override {
    acceptor_.async_accept(
        asio::make_strand(io_),
        [this, accepted](error_code code, typename Protocol::socket socket) mutable {
          if (code == asio::error::operation_aborted || !acceptor_.is_open()) return;
          if (code) {
            pause_.expires_after(kShortageTime);
            pause_.async_wait([this, accepted](error_code stopped) {
              if (!stopped && acceptor_.is_open()) accept(accepted);
            });
            return;
          }
          std::string peer = peer_of(socket);
          if (!peer.empty()) accepted(make_(std::move(socket)), std::move(peer));
          accept(std::move(accepted));
        });
  }
  void close() override {
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    if constexpr (std::is_same_v<Protocol, Unix>) ::unlink(address_.c_str() + 5);  // "unix:"
  }
  std::string address() const override { return address_; }
  std::uint16_t port() const override {
    if constexpr (std::is_same_v<Protocol, Tcp>) return acceptor_.local_endpoint().port();
    return 0;
  }

 private:
  // Empty where the client has gone already.
  static std::string peer_of(typename Protocol::socket& socket) {
    if constexpr (std::is_same_v<Protocol, Unix>) {
      return "unix";
    } else {
      error_code code;
      socket.set_option(Tcp::no_delay(true), code);
      const auto endpoint = socket.remote_endpoint(code);
      return code ? std::string() : shown(endpoint);
    }
  }

  asio::io_context& io_;
  typename Protocol::acceptor acceptor_;
  asio::steady_timer pause_;
  Make make_;
  std::string address_;
};

bool is_unix_path(const std::string& host) { return host.ends_with(".sock"); }

}  // namespace

struct Server::Core : std::enable_shared_from_this<Server::Core> {
  explicit Core(ServerOptions given) : options(std::move(given)), io(options.threads) {}

  void open_tls();
  void open_tcp(const std::string& host);
  void open_unix(const std::string& path);
  void accepted(std::unique_ptr<Transport> transport, std::string peer);
  template <class Function>
  void each_connection(Function&& function);

  ServerOptions options;
  ConnectionContext context;
  asio::io_context io;
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  std::optional<asio::ssl::context> tls;
  std::vector<std::unique_ptr<Acceptor>> acceptors;
  std::vector<std::string> addresses;
  std::uint16_t port = 0;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<std::weak_ptr<Connection>> open;  // some of them over
};

void Server::Core::open_tls() {
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    fail(ErrorCode::kInvalidArgument, "TLS needs both a certificate and a key");
  }
  if (options.tls_certificate.empty()) return;
  tls.emplace(asio::ssl::context::tls_server);
  error_code code;
  tls->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
  tls->use_certificate_chain_file(options.tls_certificate, code);
  if (code) {
    fail(ErrorCode::kInvalidFile, "{}: not a PEM file with a certificate ({})",
         options.tls_certificate, code.message());
  }
  tls->use_private_key_file(options.tls_key, asio::ssl::context::pem, code);
  if (code) {
    fail(ErrorCode::kInvalidFile, "{}: not a PEM file with the key of {} ({})", options.tls_key,
         options.tls_certificate, code.message());
  }
}

void Server::Core::open_tcp(const std::string& host) {
  error_code code;
  Tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(options.port), code);
  if (code || found.empty()) {
    fail(ErrorCode::kIo, "--host {}: there is no such address ({})", host, code.message());
  }
  Tcp::endpoint endpoint = found.begin()->endpoint();
  if (endpoint.port() == 0 && port != 0) endpoint.port(port);  // one port on all addresses
  Tcp::acceptor acceptor(asio::make_strand(io));
  acceptor.open(endpoint.protocol(), code);
  if (!code) acceptor.set_option(Tcp::acceptor::reuse_address(true), code);
  if (!code && endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(true), code);
  if (!code) acceptor.bind(endpoint, code);
  if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
  if (code) {
    fail(ErrorCode::kIo, "cannot listen on {}: {}; choose another one with --port or --host",
         shown(endpoint), code.message());
  }
  port = acceptor.local_endpoint().port();
  addresses.push_back(fmt::format("http{}://{}", tls ? "s" : "", shown(acceptor.local_endpoint())));
  acceptors.push_back(std::make_unique<SocketAcceptor<Tcp>>(
      io, std::move(acceptor),
      [this](Tcp::socket socket) -> std::unique_ptr<Transport> {
        if (tls) return std::make_unique<TlsTransport>(std::move(socket), *tls);
        return std::make_unique<PlainTransport<Tcp::socket>>(std::move(socket));
      },
      addresses.back()));
}

void Server::Core::open_unix(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    fail(ErrorCode::kInvalidArgument, "--host {}: a Unix socket's path has at most {} bytes", path,
         sizeof(sockaddr_un::sun_path) - 1);
  }
  error_code code;
  // A socket that nobody listens on is left over from a server that was killed.
  std::error_code ignored;
  if (std::filesystem::is_socket(path, ignored)) {
    Unix::socket probe(io);
    probe.connect(Unix::endpoint(path), code);
    if (code) ::unlink(path.c_str());
    code = {};
  }
  Unix::acceptor acceptor(asio::make_strand(io));
  acceptor.open(Unix(), code);
  if (!code) acceptor.bind(Unix::endpoint(path), code);
  if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
  if (code) fail(ErrorCode::kIo, "cannot listen on {}: {}", path, code.message());
  addresses.push_back("unix:" + path);
  acceptors.push_back(std::make_unique<SocketAcceptor<Unix>>(
      io, std::move(acceptor),
      [](Unix::socket socket) {
        return std::make_unique<PlainTransport<Unix::socket>>(std::move(socket));
      },
      addresses.back()));
}

void Server::Core::accepted(std::unique_ptr<Transport> transport, std::string peer) {
  if (context.connections.load(std::memory_order_relaxed) >= context.limits.connections) {
    transport->close();
    return;
  }
  // Each connection keeps the context of input and output alive; stop() closes them all.
  auto connection =
      std::make_shared<Connection>(std::shared_ptr<ConnectionContext>(shared_from_this(), &context),
                                   std::move(transport), std::move(peer));
  {
    const std::scoped_lock lock(mutex);
    if (open.size() >= 64 && open.size() >= 2 * context.connections.load()) {
      std::erase_if(open, [](const auto& each) { return each.expired(); });
    }
    open.push_back(connection);
  }
  connection->start();
}

template <class Function>
void Server::Core::each_connection(Function&& function) {
  std::vector<std::weak_ptr<Connection>> all;
  {
    const std::scoped_lock lock(mutex);
    all = open;
  }
  for (const auto& each : all) {
    if (const auto connection = each.lock()) function(*connection);
  }
}

Server::Server(ServerOptions options, Handlers handlers)
    : core_(std::make_shared<Core>(std::move(options))) {
  core_->context.limits = core_->options.limits;
  core_->context.handlers = std::move(handlers);
  core_->open_tls();
  for (const std::string& host : core_->options.hosts) {
    if (is_unix_path(host)) {
      core_->open_unix(host);
    } else {
      core_->open_tcp(host);
    }
  }
}

Server::~Server() { stop(); }

const std::vector<std::string>& Server::addresses() const { return core_->addresses; }
std::uint16_t Server::port() const { return core_->port; }

void Server::start() {
  for (const auto& acceptor : core_->acceptors) {
    acceptor->accept([core = core_.get()](std::unique_ptr<Transport> transport, std::string peer) {
      core->accepted(std::move(transport), std::move(peer));
    });
  }
  for (int i = 0; i < core_->options.threads; ++i) {
    core_->threads.emplace_back([core = core_.get()] {
      name_this_thread("http");
      core->io.run();
    });
  }
}

void Server::close_idle() {
  core_->context.closing = true;
  for (const auto& acceptor : core_->acceptors) {
    asio::post(acceptor->executor(), [each = acceptor.get()] { each->close(); });
  }
  core_->each_connection([](Connection& connection) { connection.close_idle(); });
}

void Server::stop() {
  core_->context.closing = true;
  core_->io.stop();
  for (std::thread& thread : core_->threads) thread.join();
  core_->threads.clear();
  for (const auto& acceptor : core_->acceptors) acceptor->close();
  core_->each_connection([](Connection& connection) { connection.close(); });
  // What was under way ends with an error, and lets go of its connection.
  core_->work.reset();
  core_->io.restart();
  core_->io.poll();
}

std::size_t Server::connections() const { return core_->context.connections; }
std::size_t Server::answering() const { return core_->context.answering; }

}  // namespace bl::http
