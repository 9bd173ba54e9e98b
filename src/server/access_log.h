#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

namespace bl::server {

// A file that gets a line for each request. Writing never waits for the file: lines queue up for a
// thread, and are dropped and counted where the queue is full. A full disk or a pipe that nobody
// reads therefore stops nothing.
class AccessLog {
 public:
  // "-" is stderr. Throws kIo where the file cannot be opened.
  explicit AccessLog(const std::filesystem::path& file);
  // Takes over an open descriptor.
  explicit AccessLog(int descriptor);
  // Writes what waits, unless that takes longer than a moment.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void write(std::string line);  // without the line break
  std::int64_t dropped() const;

 private:
  void run();
  bool put(const std::string& text);
  bool ready(std::chrono::milliseconds most);

  int descriptor_;
  bool owned_;
  bool broken_ = false;  // the last line was not written whole
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::int64_t dropped_ = 0;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace bl::server
