#pragma once
#include <functional>
#include <random>

#include "engine/draft_source.h"

namespace bl::test {

// Guesses that are right about as often as it is told to be, and as many as it likes.
class ScriptedDraft : public DraftSource {
 public:
  using Follows = std::function<std::int32_t(std::span<const std::int32_t>)>;
  ScriptedDraft(Follows follows, std::int64_t vocab, double right, unsigned seed)
      : follows_(std::move(follows)), vocab_(vocab), right_(right), random_(seed) {}

  void check_target(const Tokenizer*, std::int64_t) override {}
  bool is_free() const override { return free; }
  void propose(std::span<DraftJob> jobs) override {
    if (on_propose) on_propose(jobs);
    for (DraftJob& job : jobs) {
      std::vector<std::int32_t> text(job.text.begin(), job.text.end());
      const std::size_t size = text.size();
      for (auto n = static_cast<std::int64_t>(random_() % 8); n > 0; --n) {
        if (static_cast<std::int64_t>(text.size() - size) == job.most) break;
        std::int32_t id = follows_(text);
        if (std::uniform_real_distribution<>(0, 1)(random_) > right_) {
          id = static_cast<std::int32_t>((id + 1) % vocab_);
        }
        text.push_back(id);
      }
      job.ids.assign(text.begin() + static_cast<std::ptrdiff_t>(size), text.end());
    }
  }

  bool free = false;
  std::function<void(std::span<const DraftJob>)> on_propose;

 private:
  Follows follows_;
  std::int64_t vocab_;
  double right_;
  std::mt19937 random_;
};

}  // namespace bl::test
