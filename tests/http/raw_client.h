#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace bl::test {

// A blocking TCP client that sends and receives bytes as they are.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(std::string_view bytes);
  // Reads until `mark` has arrived, and returns all up to and with it; what follows stays. Returns
  // what there is where the connection ends or nothing comes for `most`.
  std::string read_to(std::string_view mark, std::chrono::milliseconds most = kPatience);
  // Reads one whole answer with a Content-Length, or chunked; chunks are returned as they came.
  std::string read_answer();
  // Reads until the server closes, and returns all.
  std::string read_all(std::chrono::milliseconds most = kPatience);
  void close();
  void finish_sending();
  bool ended() const { return ended_; }

 private:
  static constexpr std::chrono::milliseconds kPatience{30'000};
  bool receive(std::chrono::milliseconds most);

  int socket_ = -1;
  std::string received_;
  bool ended_ = false;
};

}  // namespace bl::test
