#include "server/access_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace bl::server {
namespace {

constexpr std::size_t kMostBytes = std::size_t{8} << 20;
// A pipe that poll() calls ready has room for this many bytes (PIPE_BUF), so write() returns.
constexpr std::size_t kPiece = 4096;
constexpr std::chrono::milliseconds kPatience{1000};  // with a reader that does not read
constexpr std::chrono::milliseconds kLastPatience{200};

int opened(const std::filesystem::path& file) {
  if (file == "-") return STDERR_FILENO;
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (descriptor < 0) {
    fail(ErrorCode::kIo, "--access-log {}: {}; name a file that can be written, or - for stderr",
         file.string(), std::strerror(errno));
  }
  return descriptor;
}

}  // namespace

AccessLog::AccessLog(const std::filesystem::path& file) : AccessLog(opened(file)) {}

AccessLog::AccessLog(int descriptor)
    : descriptor_(descriptor), owned_(descriptor != STDERR_FILENO), thread_([this] { run(); }) {}

AccessLog::~AccessLog() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (owned_) ::close(descriptor_);
}

void AccessLog::write(std::string line) {
  line += '\n';
  {
    const std::scoped_lock lock(mutex_);
    if (waiting_bytes_ + line.size() > kMostBytes) {
      ++dropped_;
      return;
    }
    waiting_bytes_ += line.size();
    waiting_.push_back(std::move(line));
  }
  changed_.notify_one();
}

std::int64_t AccessLog::dropped() const {
  const std::scoped_lock lock(mutex_);
  return dropped_;
}

void AccessLog::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return over_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::string line = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= line.size();
    lock.unlock();
    const bool done = put(line);
    lock.lock();
    if (!done) ++dropped_;
    if (!done && over_) return;
  }
}

bool AccessLog::ready(std::chrono::milliseconds most) {
  pollfd wanted{descriptor_, POLLOUT, 0};
  return ::poll(&wanted, 1, static_cast<int>(most.count())) > 0;
}

// Returns false where the line could not be written whole.
bool AccessLog::put(const std::string& text) {
  // The rest of a line that could not be written whole is ended first, so that this one is whole.
  const std::string whole = std::exchange(broken_, true) ? "\n" + text : text;
  std::size_t at = 0;
  while (at < whole.size()) {
    bool over = false;
    {
      const std::scoped_lock lock(mutex_);
      over = over_;
    }
    if (!ready(over ? kLastPatience : kPatience)) return false;
    const ssize_t count =
        ::write(descriptor_, whole.data() + at, std::min(whole.size() - at, kPiece));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return false;
    at += static_cast<std::size_t>(count);
  }
  broken_ = false;
  return true;
}

}  // namespace bl::server
