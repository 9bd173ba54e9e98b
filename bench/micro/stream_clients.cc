#include "stream_clients.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace bl {
namespace {

// A client that sends one request for a stream and counts what comes.
class Stream {
 public:
  Stream(std::uint16_t port, const std::string& body) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BL_CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    const std::string text = fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
        body.size(), body);
    BL_CHECK(::send(socket_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  }
  Stream(Stream&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(socket_, other.socket_);
    over_ = other.over_;
    events_ = other.events_;
    bytes_ = other.bytes_;
    tail_ = std::move(other.tail_);
    return *this;
  }
  ~Stream() {
    if (socket_ >= 0) ::close(socket_);
  }

  int socket() const { return socket_; }
  bool over() const { return over_; }
  std::int64_t events() const { return events_; }
  std::int64_t bytes() const { return bytes_; }
  // The tokens of the answer, as its last chunk tells them.
  std::int64_t tokens() const {
    const std::size_t at = tail_.rfind("\"completion_tokens\":");
    return at == tail_.npos ? 0 : std::atoll(tail_.c_str() + at + 20);
  }

  void receive() {
    std::array<char, 1 << 16> buffer;
    const ssize_t count = ::recv(socket_, buffer.data(), buffer.size(), 0);
    if (count <= 0) fail(ErrorCode::kIo, "a stream ended early: {}", tail_);
    bytes_ += count;
    // A mark may be cut between two pieces: its beginning is kept with the tail.
    const std::string_view mark = "data: {";
    const std::size_t kept = std::min(tail_.size(), mark.size() - 1);
    const std::string piece = tail_.substr(tail_.size() - kept) +
                              std::string(buffer.data(), static_cast<std::size_t>(count));
    for (std::size_t at = piece.find(mark); at != piece.npos; at = piece.find(mark, at + 1)) {
      ++events_;
    }
    tail_ += std::string_view(piece).substr(kept);
    if (tail_.size() > 4096) tail_.erase(0, tail_.size() - 2048);
    over_ = tail_.find("data: [DONE]") != tail_.npos;
  }

 private:
  int socket_;
  bool over_ = false;
  std::int64_t events_ = 0;
  std::int64_t bytes_ = 0;
  std::string tail_;
};

void add(StreamRound& round, const Stream& stream, std::int64_t tokens) {
  if (stream.tokens() != tokens) {
    fail(ErrorCode::kIo, "a stream has {} tokens instead of {}", stream.tokens(), tokens);
  }
  round.tokens += stream.tokens();
  round.events += stream.events();
  round.bytes += stream.bytes();
}

}  // namespace

StreamRound run_streams(const StreamLoad& load, std::span<const std::string> bodies) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  const std::clock_t cpu_began = std::clock();
  StreamRound round;
  std::size_t asked = std::min(bodies.size(), static_cast<std::size_t>(load.clients));
  std::vector<Stream> streams;
  std::vector<pollfd> wanted;
  for (std::size_t i = 0; i < asked; ++i) {
    streams.emplace_back(load.port, bodies[i]);
    wanted.push_back({streams.back().socket(), POLLIN, 0});
  }
  for (std::size_t open = asked; open > 0;) {
    if (::poll(wanted.data(), wanted.size(), 60'000) <= 0) fail(ErrorCode::kIo, "nothing comes");
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (wanted[i].revents == 0) continue;
      streams[i].receive();
      if (!streams[i].over()) continue;
      add(round, streams[i], load.tokens);
      if (asked < bodies.size()) {
        streams[i] = Stream(load.port, bodies[asked++]);
        wanted[i] = {streams[i].socket(), POLLIN, 0};
      } else {
        wanted[i] = {-1, 0, 0};
        --open;
      }
    }
  }
  round.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  round.cpu_seconds = static_cast<double>(std::clock() - cpu_began) / CLOCKS_PER_SEC;
  return round;
}

}  // namespace bl
