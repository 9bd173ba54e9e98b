// What the server costs by itself: streams of completions over HTTP, from a model whose ops compute
// nothing. Prints one line of JSON. bench/server_load makes the model folder and runs it.
//
// Usage: server_stream_bench MODEL STREAMS TOKENS ROUNDS

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"
#include "engine/engine.h"
#include "server/api_server.h"

namespace bl {
namespace {

using Clock = std::chrono::steady_clock;

template <class... Args>
void nothing(ExecContext&, const Args&...) {}

// Every row's likeliest token is the letter "a".
void always_a(ExecContext&, const ArgmaxArgs& args) {
  std::fill_n(args.out, args.logits.rows(), 'a');
}

constexpr OpTable kNoOps{.embed = nothing,
                         .norm = nothing,
                         .activate = nothing,
                         .add = nothing,
                         .scale = nothing,
                         .gate = nothing,
                         .clamp = nothing,
                         .copy_rows = nothing,
                         .add_rows = nothing,
                         .matmul = nothing,
                         .route = nothing,
                         .experts = nothing,
                         .rope = nothing,
                         .kv_write = nothing,
                         .attention = nothing,
                         .argmax = always_a};

std::shared_ptr<server::ServedModel> load(const std::string& folder, std::int64_t streams) {
  SessionOptions options;
  options.model = folder;
  options.backend = "cpu";
  options.threads = 1;
  options.sequences = streams;
  options.context = 4096;
  std::unique_ptr<ModelSession> session = ModelSession::load(options);
  session->use_ops(&kNoOps);
  server::ServedModel::Args args;
  args.engine = std::make_unique<Engine>(std::move(session));
  args.names = {"none"};
  return std::make_shared<server::ServedModel>(std::move(args));
}

// A client that sends one request for a stream and counts what comes.
class Stream {
 public:
  Stream(std::uint16_t port, std::int64_t tokens) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BL_CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    const std::string body = fmt::format(
        R"({{"prompt":"Hi","max_tokens":{},"temperature":0,"ignore_eos":true,"stream":true,)"
        R"("stream_options":{{"include_usage":true}}}})",
        tokens);
    const std::string text = fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
        body.size(), body);
    BL_CHECK(::send(socket_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  }
  Stream(Stream&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
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
    if (count <= 0) fail(ErrorCode::kIo, "a stream ended early");
    bytes_ += count;
    // A mark may be cut between two pieces: its beginning is kept with the tail.
    const std::string_view mark = "data: {";
    const std::size_t kept = std::min(tail_.size(), mark.size() - 1);
    const std::string piece = tail_.substr(tail_.size() - kept) +
                              std::string(buffer.data(), static_cast<std::size_t>(count));
    for (std::size_t at = piece.find(mark); at != piece.npos; at = piece.find(mark, at + 1))
      ++events_;
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

struct Round {
  double seconds = 0;
  std::int64_t tokens = 0;
  std::int64_t events = 0;
  std::int64_t bytes = 0;
};

Round run_round(std::uint16_t port, std::int64_t count, std::int64_t tokens) {
  const auto began = Clock::now();
  std::vector<Stream> streams;
  for (std::int64_t i = 0; i < count; ++i) streams.emplace_back(port, tokens);
  std::vector<pollfd> wanted;
  for (const Stream& stream : streams) wanted.push_back({stream.socket(), POLLIN, 0});
  std::int64_t open = count;
  while (open > 0) {
    if (::poll(wanted.data(), wanted.size(), 60'000) <= 0) fail(ErrorCode::kIo, "nothing comes");
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (wanted[i].revents == 0) continue;
      streams[i].receive();
      if (!streams[i].over()) continue;
      wanted[i].fd = -1;
      wanted[i].revents = 0;
      --open;
    }
  }
  Round round{.seconds = std::chrono::duration<double>(Clock::now() - began).count()};
  for (const Stream& stream : streams) {
    if (stream.tokens() != tokens) {
      fail(ErrorCode::kIo, "a stream has {} tokens instead of {}", stream.tokens(), tokens);
    }
    round.tokens += stream.tokens();
    round.events += stream.events();
    round.bytes += stream.bytes();
  }
  return round;
}

void run(const std::vector<std::string>& words) {
  const std::int64_t streams = std::stoll(words.at(1));
  const std::int64_t tokens = std::stoll(words.at(2));
  server::ApiServer server({.http = {.port = 0}});
  server.state().set_model(load(words.at(0), streams));
  server.start();
  Json rates = Json::array();
  Round last;
  for (int i = std::stoi(words.at(3)); i > 0; --i) {
    last = run_round(server.port(), streams, tokens);
    rates.push_back(static_cast<double>(last.tokens) / last.seconds);
  }
  fmt::print("{}\n", Json{{"streams", streams},
                          {"tokens_per_second", rates},
                          {"tokens_of_an_event",
                           static_cast<double>(last.tokens) / static_cast<double>(last.events)},
                          {"bytes_of_a_token",
                           static_cast<double>(last.bytes) / static_cast<double>(last.tokens)}}
                         .dump());
  server.stop(std::chrono::seconds(5));
}

}  // namespace
}  // namespace bl

int main(int count, char** words) {
  if (count != 5) {
    fmt::print(stderr, "usage: server_stream_bench MODEL STREAMS TOKENS ROUNDS\n");
    return 2;
  }
  try {
    bl::run({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "server_stream_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
