#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

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
class TokenCounts;

// Which of an item's new tokens need logits.
enum class LogitRows { kNone, kLast, kAll };

// The next `count` tokens of a sequence: ids[cached, cached + count).
struct StepItem {
  Sequence* sequence = nullptr;
  std::int64_t count = 0;
  LogitRows logits = LogitRows::kNone;
  // Set where nothing but these parameters and the sequence's own ids decide which token follows
  // each row: a model that can may then choose it instead of giving logits.
  const SamplingParams* sampling = nullptr;
  std::uint64_t seed = 0;         // of the draws, in place of theirs
  TokenCounts* counts = nullptr;  // of the sequence's ids, kept for it; null: none are
  // Of draft(): what was guessed behind the sequence's ids so far.
  std::span<const std::int32_t> guessed{};
  bool log_probabilities = false;        // of the tokens that it chooses, before any stage
  const AdapterMix* adapters = nullptr;  // null: none
};

// Logits of the rows that were asked for, in the order of the items, in host memory.
class StepLogits {
 public:
  StepLogits() = default;
  // F32 [rows, vocab], of which the first is the step's row `first`.
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

// What a step gives, valid until the next one.
struct StepOutput {
  StepLogits logits;
  // Where the model chose tokens itself: one a row, −1 for a row that has logits. Empty: all have.
  std::span<const std::int32_t> ids{};
  // [rows] of the tokens that it chose, where an item wants some.
  std::span<const float> log_probabilities{};
  // Whether the row has neither: it was asked for a token, has none to give, and its logits are
  // gone because the step was repeated.
  bool lost(std::int64_t row) const { return !chose(row) && !logits.has(row); }
  bool chose(std::int64_t row) const {
    return !ids.empty() && ids[static_cast<std::size_t>(row)] >= 0;
  }
  float log_probability(std::int64_t row) const {
    return log_probabilities.empty() ? 0 : log_probabilities[static_cast<std::size_t>(row)];
  }
};

// What the engine asks of a model. A session is one; tests and measurements of the engine itself
// bring their own.
class StepModel {
 public:
  struct Facts {
    std::int64_t vocab = 0;        // width of a row of logits
    std::int64_t ids = 0;          // tokens must be below
    std::int64_t context = 0;      // longest sequence
    std::int64_t step_tokens = 0;  // of one step, at most
    std::int64_t logit_rows = 0;   // of one step, at most
    std::int64_t sequences = 0;    // at once, at most; 0: as many as there are rows
    // Tokens behind a text that draft() guesses at once, at most; 0: it guesses nothing.
    std::int64_t draft_tokens = 0;
    bool draft_chains = false;  // one at a time, each behind the ones before it
  };
  virtual ~StepModel() = default;
  virtual Facts facts() const = 0;
  virtual PagePool& pool() = 0;
  // Where rotations depend on how long a sequence may become, its reach: the shortest one under
  // which its keys mean what they mean under this one, so that texts which agree in it can share
  // pages. May be asked from any thread.
  virtual std::int64_t alike_reach(std::int64_t) const { return 0; }

  // Computes the items, whose tables have the pages for all their tokens; `cached` of each grows by
  // its count. Throws Error; then nothing has been computed.
  virtual StepOutput run(std::span<const StepItem> items) = 0;
  // The same in two halves: what start() has begun, take() waits for. Steps that were begun and not
  // taken are forgotten with the next start().
  virtual void start(std::span<const StepItem> items) { output_ = run(items); }
  virtual StepOutput take() { return output_; }
  // While the last step that was begun, or repeated, is not taken: its first sequences in the same
  // order once more, as many as there are items, each with the one token that its row will turn out
  // to be, which stands at `cached` and is not among the ids yet. `cached` stays as it is: it grows
  // by one for whoever takes the first step and knows the token. False, and nothing has happened,
  // where the model cannot: only tokens that it chooses itself, without their history, are there in
  // time.
  virtual bool repeat(std::span<const StepItem>) { return false; }
  // What the model's own side layers guess behind texts of which all but the last token is
  // computed, and whose tables have pages for draft_tokens more: of each item `count` tokens,
  // draft_tokens at most, with a row each (kAll). Layers that chain guess one token behind those
  // of StepItem::guessed, which is of the round before; `count` is one more than these, and there
  // is one row (kLast). Rows are as of a step that computes the last token and the guesses; logits
  // are of the side layers. Changes nothing about the texts. No step is under way. At most
  // step_tokens tokens, of which an item has 1 + draft_tokens (1, in a chain), and logit_rows rows.
  virtual StepOutput draft(std::span<const StepItem>) {
    fail(ErrorCode::kUnsupported, "this model has no layers that guess");
  }
  virtual void copy_page(std::int32_t to, std::int32_t from) = 0;
  // What moves pages to host memory and to files; null where that is not possible.
  virtual PageMemory* page_memory() { return nullptr; }
  // What a page of it depends on. May be asked from any thread. Throws Error.
  virtual PageKind page_kind() { return {}; }
  // Tokens of a page's beginning from which copying it is faster than computing them.
  virtual std::int64_t least_copied() const { return 1; }
  // ModelSession's functions of these names, for models that take adapters.
  virtual std::unique_ptr<PreparedAdapter> prepare_adapter(const std::filesystem::path&) const {
    fail(ErrorCode::kUnsupported, "this model takes no adapters");
  }
  virtual std::shared_ptr<const LoraAdapter> pack_adapter(const PreparedAdapter&, std::size_t) {
    fail(ErrorCode::kUnsupported, "this model takes no adapters");
  }
  // Bytes that a packed adapter takes.
  virtual std::size_t adapter_bytes(const PreparedAdapter&) { return 0; }
  // For work on rows of logits; null where there is none.
  virtual ThreadPool* threads() { return nullptr; }

 private:
  StepOutput output_;
};

}  // namespace bl
