#include "http/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "base/check.h"

namespace bl::test {

RawClient::RawClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  BL_CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
}

RawClient::~RawClient() { close(); }

void RawClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void RawClient::finish_sending() { ::shutdown(socket_, SHUT_WR); }

void RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the server has closed; the test sees it when it reads
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

bool RawClient::receive(std::chrono::milliseconds most) {
  pollfd ready{socket_, POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(most.count())) <= 0) return false;
  char bytes[1 << 16];
  const ssize_t count = ::recv(socket_, bytes, sizeof(bytes), 0);
  ended_ = count <= 0;
  if (!ended_) received_.append(bytes, static_cast<std::size_t>(count));
  return !ended_;
}

std::string RawClient::read_to(std::string_view mark, std::chrono::milliseconds most) {
  std::size_t at = received_.find(mark);
  while (at == std::string::npos && receive(most)) at = received_.find(mark);
  const std::size_t end = at == std::string::npos ? received_.size() : at + mark.size();
  std::string result = received_.substr(0, end);
  received_.erase(0, end);
  return result;
}

std::string RawClient::read_answer() {
  std::string answer = read_to("\r\n\r\n");
  constexpr std::string_view kLength = "Content-Length: ";
  const std::size_t at = answer.find(kLength);
  if (at == std::string::npos) {
    return answer.find("chunked") == std::string::npos ? answer : answer + read_to("0\r\n\r\n");
  }
  const auto length = std::strtoul(answer.c_str() + at + kLength.size(), nullptr, 10);
  while (received_.size() < length && receive(kPatience)) {
  }
  answer += received_.substr(0, length);
  received_.erase(0, length);
  return answer;
}

std::string RawClient::read_all(std::chrono::milliseconds most) {
  while (receive(most)) {
  }
  return std::move(received_);
}

}  // namespace bl::test
