#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/draft_source.h"
#include "engine/model_session.h"
#include "engine/row_sampler.h"
#include "engine/sequence.h"
#include "engine/step_model.h"

namespace bl {

// Guesses by a smaller model of the same vocabulary, with pages of its own, for all texts of a step
// together. It draws as the target will: with the same parameters, seed and place, from its own
// distribution, so that the two agree as often as their distributions do (always, for a model that
// drafts for itself).
//
// A text that is longer than its context gets no guesses. One that it has not read yet is read
// beside the guessing for others, a step's budget at a time, and gets none until then.
class ModelDraft : public DraftSource {
 public:
  // Makes a few steps, to know what they cost.
  explicit ModelDraft(std::unique_ptr<ModelSession> session);
  // Any model; `tokenizer` may be null, and must outlive it.
  ModelDraft(std::unique_ptr<StepModel> model, const Tokenizer* tokenizer);
  ~ModelDraft() override;

  void check_target(const Tokenizer* tokenizer, std::int64_t vocab) override;
  bool is_free() const override { return false; }
  double round_seconds() const override { return round_seconds_; }
  std::int64_t unread(const DraftJob& job) const override;
  double read_seconds() const override { return read_seconds_; }
  void propose(std::span<DraftJob> jobs) override;

  const CacheStats& cache() const { return cache_.stats(); }

 private:
  struct Text;
  struct Active {
    DraftJob* job = nullptr;
    Text* text = nullptr;
    std::int64_t most = 0;
  };
  void measure_prices();
  std::string salt_of(const DraftJob& job) const;
  Text* follow(DraftJob& job);
  bool run_round();
  void take_rows(const std::vector<Active*>& rows, const StepOutput& output);
  std::span<const float> fitted(std::span<const float> row, std::size_t index);

  std::unique_ptr<ModelSession> session_;
  std::unique_ptr<StepModel> model_;
  const Tokenizer* tokenizer_ = nullptr;
  StepModel::Facts facts_;
  std::int64_t vocab_ = 0;  // the target's
  PrefixCache cache_;
  RowSampler row_sampler_;
  double round_seconds_ = 0;
  double read_seconds_ = 0;  // a token
  std::vector<Active> active_;
  std::vector<StepItem> items_;
  std::vector<RowTask> tasks_;
  std::vector<std::vector<float>> padded_;  // rows narrower than the target's
};

// Throws kInvalidArgument unless both give every id the same token, naming both sizes or the first
// id that differs.
void check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft);

}  // namespace bl
