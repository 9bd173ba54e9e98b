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

// Guesses by a smaller model of the same vocabulary, with a KV cache of its own, for all texts of a
// step together. It draws as the target will: with the same parameters, seed and position, but from
// its own distribution. So the two agree as often as their distributions do (always, for a model
// that drafts for itself).
//
// A text that is longer than the draft's context gets no guesses. A text that it has not read yet
// is read in chunks of a step's budget, beside the guessing for others, and gets no guesses until
// then.
class ModelDraft : public DraftSource {
 public:
  // Runs a few steps, to measure what they cost.
  explicit ModelDraft(std::unique_ptr<ModelSession> session);
  // For any model. `tokenizer` may be null, and must outlive it.
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
  // What a step can still take.
  struct Budget {
    std::int64_t tokens = 0;
    std::int64_t rows = 0;
    bool reads = false;  // some text is being read, not only guessed for
  };
  void measure_prices();
  std::string salt_of(const DraftJob& job) const;
  Text* follow(DraftJob& job);
  bool add_item(const Active& active, Budget& budget);
  bool run_round();
  void take_rows(const std::vector<Active*>& rows, const StepOutput& output);
  std::span<const float> fitted(std::span<const float> row, std::size_t index);

  std::unique_ptr<ModelSession> session_;
  std::unique_ptr<StepModel> model_;
  const Tokenizer* tokenizer_ = nullptr;
  StepModel::Facts facts_;
  std::int64_t vocab_ = 0;  // of the target
  PrefixCache cache_;
  RowSampler row_sampler_;
  double round_seconds_ = 0;
  double read_seconds_ = 0;  // per token
  std::vector<Active> active_;
  std::vector<StepItem> items_;
  std::vector<RowTask> tasks_;
  std::vector<std::vector<float>> padded_;  // rows that are narrower than the target's, widened
};

// Throws kInvalidArgument unless both tokenizers give every id the same token; the message names
// both sizes, or the first id that differs.
void check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft);

}  // namespace bl
