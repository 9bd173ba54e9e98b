#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/draft_source.h"
#include "engine/row_sampler.h"
#include "engine/step_model.h"

namespace bl {

// Guesses by side layers of the target model, which read its hidden states (StepModel::draft), for
// all texts of a step together. It keeps nothing about a text, since the layers' keys and values
// are in the target's own pages. Like ModelDraft it draws with the target's sampler, so that a
// guess is often the token that the target will draw.
class HiddenDraft : public DraftSource {
 public:
  void check_target(const Tokenizer*, std::int64_t) override {}  // the vocabulary is the target's
  // Runs the model for a few tokens, to measure what guessing costs.
  void attach(StepModel& target) override;
  std::int64_t slots_behind() const override { return 1 + facts_.draft_tokens; }
  bool is_free() const override { return false; }
  double fixed_seconds() const override { return fixed_seconds_; }
  double round_seconds() const override { return round_seconds_; }
  void propose(std::span<DraftJob> jobs) override;

 private:
  // A text while it is guessed for.
  struct Text {
    DraftJob* job = nullptr;
    std::vector<std::int32_t> history{};  // the text and its guesses
    std::int64_t row = 0;                 // the row of the output for its next guess
    bool over = false;
  };
  void measure_price();
  StepItem item_of(const DraftJob& job, std::int64_t count) const;
  void guess_at_once(std::span<Text> texts);
  void guess_in_turn(std::span<Text> texts);
  void draw(std::span<Text> texts, const StepOutput& output);

  StepModel* target_ = nullptr;
  StepModel::Facts facts_;
  std::unique_ptr<RowSampler> row_sampler_;
  double fixed_seconds_ = 0;
  double round_seconds_ = 0;
  std::vector<Text> texts_;
  std::vector<StepItem> items_;
  std::vector<RowTask> tasks_;
};

}  // namespace bl
