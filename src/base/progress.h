#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace bl {

// Shows the progress of one long operation on stderr: a bar with rate and time left on a terminal,
// a plain line every five seconds elsewhere, nothing with --quiet or when it is over within two
// seconds. All functions may be called from any thread, as often as one likes.
class Progress {
 public:
  enum class Unit { kItems, kBytes, kTokens };
  Progress(std::string label, std::int64_t total, Unit unit);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // Clears the bar. Where stderr is no terminal, prints a last line if earlier ones were printed
  // and the operation is complete.
  ~Progress();

  // Set, add to, or return the amount that is done; it never exceeds the total.
  void update(std::int64_t done);
  void advance(std::int64_t amount);
  std::int64_t done() const;

 private:
  using Clock = std::chrono::steady_clock;
  void set_done(std::int64_t done);  // the caller holds mutex_
  std::string rate_text(double seconds) const;
  void draw(double seconds);

  std::string label_;
  std::int64_t total_;
  Unit unit_;
  bool terminal_;
  std::int64_t done_ = 0;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_draw_;
  mutable std::mutex mutex_;
};

}  // namespace bl
