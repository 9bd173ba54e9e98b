#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "cache/page_kind.h"
#include "cache/page_pool.h"
#include "engine/sequence.h"
#include "model/adapter_packer.h"
#include "sample/sampling_params.h"
#include "tensor/tensor_view.h"

namespace bl {

class PageMemory;
class ThreadPool;
struct PenaltyCounts;

// Which of an item's tokens need a row of logits.
enum class LogitRows { kNone, kLast, kAll };

// Asks for the next `count` tokens of a sequence to be computed: ids [cached, cached + count).
struct StepItem {
  Sequence* sequence = nullptr;
  std::int64_t count = 0;
  LogitRows logits = LogitRows::kNone;
  // Set where only these parameters and the sequence's own ids decide which token follows each row.
  // Then the model may choose that token instead of giving logits.
  const SamplingParams* sampling = nullptr;
  std::uint64_t seed = 0;           // for the draws, in place of sampling->seed
  std::int64_t prompt = 0;          // how many of the sequence's ids are not the answer's
  PenaltyCounts* counts = nullptr;  // of the sequence's ids, kept between steps; null: none
  // The model's, for sampling->ban_end_tokens.
  std::span<const std::int32_t> end_tokens{};
  // For draft(): what was guessed behind the sequence's ids so far.
  std::span<const std::int32_t> guessed{};
  bool log_probabilities = false;        // of chosen tokens are wanted, from the raw logits
  const AdapterMix* adapters = nullptr;  // null: none
};

// The logits of the rows that were asked for, in the order of the items, in host memory.
class StepLogits {
 public:
  StepLogits() = default;
  // `view`: F32 [rows, vocab], which begins with the step's row `first`.
  StepLogits(TensorView view, std::int64_t first = 0) : view_(view), first_(first) {}
  std::int64_t rows() const { return view_.rows(); }
  bool has(std::int64_t i) const { return i >= first_ && i - first_ < view_.rows(); }
  std::span<const float> row(std::int64_t i) const {
    return {view_.row<float>(i - first_), static_cast<std::size_t>(view_.columns())};
  }

 private:
  TensorView view_;
  std::int64_t first_ = 0;
};

// The result of a step, valid until the next one.
struct StepOutput {
  StepLogits logits;
  // Tokens that the model chose itself, one per row; −1 for a row that has logits. Empty: all have.
  std::span<const std::int32_t> ids{};
  // [rows] the log-probabilities of these tokens, where an item wants some.
  std::span<const float> log_probabilities{};
  // Whether the row has neither token nor logits: the model could not choose a token, and the
  // logits are gone because the step was repeated.
  bool lost(std::int64_t row) const { return !chose(row) && !logits.has(row); }
  bool chose(std::int64_t row) const {
    return !ids.empty() && ids[static_cast<std::size_t>(row)] >= 0;
  }
  float log_probability(std::int64_t row) const {
    return log_probabilities.empty() ? 0 : log_probabilities[static_cast<std::size_t>(row)];
  }
};

// What the engine asks of a model. SessionModel is the real one; tests and benchmarks of the engine
// bring their own.
class StepModel {
 public:
  struct Facts {
    std::int64_t vocab = 0;        // width of a row of logits
    std::int64_t ids = 0;          // ids of tokens are below this
    std::int64_t context = 0;      // tokens of the longest sequence
    std::int64_t step_tokens = 0;  // tokens per step, at most
    std::int64_t logit_rows = 0;   // rows per step, at most
    std::int64_t sequences = 0;    // that run at once, at most; 0: as many as there are rows
    // Tokens that draft() guesses behind a text, at most; 0: it does not guess.
    std::int64_t draft_tokens = 0;
    bool draft_chains = false;  // draft() guesses one token at a time, behind the guesses before
  };
  virtual ~StepModel() = default;
  virtual Facts facts() const = 0;
  virtual PagePool& pool() = 0;
  // For models whose rotary embeddings depend on how long a sequence may become (Sequence::reach):
  // the shortest reach with the same keys as `reach`, so that texts for which it is equal can share
  // pages. May be called from any thread.
  virtual std::int64_t alike_reach(std::int64_t) const { return 0; }

  // Computes the items, whose page tables have room for all their tokens; `cached` of each sequence
  // grows by `count`. Throws Error; then nothing has been computed.
  virtual StepOutput run(std::span<const StepItem> items) = 0;
  // run() in two halves: take() waits for the step that start() has begun. The next start() forgets
  // steps that were not taken.
  virtual void start(std::span<const StepItem> items) { output_ = run(items); }
  virtual StepOutput take() { return output_; }
  // Enqueues another step behind one that was begun and not taken yet. Its items are for the first
  // sequences of that step, in the same order, each with one token: the one that the sequence's row
  // in that step turns out to be, at position `cached`, which is not among the ids yet. `cached`
  // stays as it is; whoever takes the first step and learns the token adds one. False, and nothing
  // has happened, where the model cannot do this: it has to choose the tokens itself, and without
  // their history.
  virtual bool repeat(std::span<const StepItem>) { return false; }
  // Lets the model's side layers guess behind texts of which all but the last token is computed,
  // and whose page tables have room for draft_tokens more. An item asks for `count` guesses,
  // draft_tokens at most, with a row of the side layers' logits each (kAll). With draft_chains it
  // asks for one guess behind StepItem::guessed, the guesses of the rounds before: `count` is one
  // more than these, and there is one row (kLast). The texts do not change. No step may be under
  // way. A call takes at most step_tokens tokens, counting 1 + draft_tokens per item (1 with
  // draft_chains), and logit_rows rows. Throws as run().
  virtual StepOutput draft(std::span<const StepItem>) {
    fail(ErrorCode::kUnsupported, "this model has no layers that guess");
  }
  // Computes the items as run() does, and writes the input of the model's head for each wanted row
  // to `states`, [rows, hidden]. No step may be under way. Throws as run().
  virtual void run_states(std::span<const StepItem>, std::vector<float>&) {
    fail(ErrorCode::kUnsupported, "this model gives no hidden states");
  }
  virtual void copy_page(std::int32_t to, std::int32_t from) = 0;
  // Moves pages to host memory and to files; null where that is not possible.
  virtual PageMemory* page_memory() { return nullptr; }
  // What the contents of its pages depend on. May be called from any thread. Throws Error.
  virtual PageKind page_kind() { return {}; }
  // From this many tokens on, copying the beginning of a page is faster than computing it.
  virtual std::int64_t least_copied() const { return 1; }
  // As in ModelSession, for models that take adapters.
  virtual std::unique_ptr<PreparedAdapter> prepare_adapter(const std::filesystem::path&) const {
    fail(ErrorCode::kUnsupported, "this model takes no adapters");
  }
  virtual std::shared_ptr<const LoraAdapter> pack_adapter(const PreparedAdapter&, std::size_t) {
    fail(ErrorCode::kUnsupported, "this model takes no adapters");
  }
  // The bytes that a packed adapter takes.
  virtual std::size_t adapter_bytes(const PreparedAdapter&) { return 0; }
  // Threads for work on rows of logits; null: none.
  virtual ThreadPool* threads() { return nullptr; }

 private:
  StepOutput output_;
};

}  // namespace bl
