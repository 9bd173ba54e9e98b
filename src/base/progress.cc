#include "base/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "base/terminal.h"

namespace bl {
namespace {

using namespace std::chrono_literals;

constexpr auto kQuietStart = 2s;  // shorter operations show nothing
constexpr auto kBarPeriod = 100ms;
constexpr auto kLinePeriod = 5s;

void write_stderr(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::string bar(double share, int width) {
  const int eighths = static_cast<int>(share * width * 8);
  constexpr const char* kPartial[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string text;
  int cells = 0;
  for (; cells < eighths / 8; ++cells) text += "█";
  if (eighths % 8 != 0) {
    text += kPartial[eighths % 8];
    ++cells;
  }
  return text + std::string(static_cast<std::size_t>(std::max(0, width - cells)), ' ');
}

}  // namespace

Progress::Progress(std::string label, std::int64_t total, Unit unit)
    : label_(std::move(label)),
      total_(std::max<std::int64_t>(total, 1)),
      unit_(unit),
      terminal_(is_terminal(Stream::kStderr)),
      next_draw_(start_ + kQuietStart) {}

Progress::~Progress() {
  if (!shown_) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (terminal_) {
    write_stderr("\r\x1b[K");
  } else if (done_ >= total_) {
    write_stderr(
        fmt::format("{}: done in {}, {}\n", label_, human_time(seconds), rate_text(seconds)));
  }
}

void Progress::advance(std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  set_done(done_ + amount);
}

void Progress::update(std::int64_t done) {
  const std::lock_guard lock(mutex_);
  set_done(done);
}

std::int64_t Progress::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Progress::set_done(std::int64_t done) {
  done_ = std::min(done, total_);
  const auto now = Clock::now();
  if (is_quiet() || now < next_draw_) return;
  next_draw_ = now + (terminal_ ? Clock::duration(kBarPeriod) : Clock::duration(kLinePeriod));
  draw(std::chrono::duration<double>(now - start_).count());
}

std::string Progress::rate_text(double seconds) const {
  const double rate = static_cast<double>(done_) / std::max(seconds, 1e-9);
  switch (unit_) {
    case Unit::kBytes:
      return human_bytes(rate) + "/s";
    case Unit::kTokens:
      return fmt::format("{:.0f} tok/s", rate);
    case Unit::kItems:
      break;
  }
  return fmt::format("{:.1f}/s", rate);
}

void Progress::draw(double seconds) {
  const double share = static_cast<double>(done_) / static_cast<double>(total_);
  const double left = share > 0 ? seconds / share - seconds : 0;
  const std::string amount =
      unit_ == Unit::kBytes
          ? human_bytes(static_cast<double>(done_)) + " of " +
                human_bytes(static_cast<double>(total_))
          : fmt::format("{} of {}{}", done_, total_, unit_ == Unit::kTokens ? " tokens" : "");
  const std::string tail =
      fmt::format("{:3.0f} %  {}, {}{}", share * 100, amount, rate_text(seconds),
                  share > 0 ? ", " + human_time(left) + " left" : "");
  shown_ = true;
  if (!terminal_) {
    write_stderr(fmt::format("{}: {}\n", label_, tail));
    return;
  }
  const int room = terminal_width(Stream::kStderr) - static_cast<int>(label_.size() + tail.size());
  const int width = std::clamp(room - 6, 0, 30);
  const std::string drawn =
      width < 5 ? std::string() : colored(Stream::kStderr, Color::kGreen, bar(share, width)) + " ";
  write_stderr(fmt::format("\r\x1b[K{} {}{}", label_, drawn, tail));
}

}  // namespace bl
