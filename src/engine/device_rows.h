#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_model.h"
#include "engine/token_counts.h"
#include "ops/backend.h"
#include "ops/sample.h"
#include "tensor/tensor.h"

namespace bl {

// Decides what becomes of a step's rows on the backend: where an item has sampling parameters, the
// backend chooses the tokens of its rows; the other rows come to the host as logits.
//
// Invariant: a token chosen on the backend is the one that SamplerChain chooses from the same row,
// up to the rounding of sums. What a step enqueues depends only on key() and the number of rows, so
// that it can be recorded.
class DeviceRows {
 public:
  // Sets where results are copied to: host memory that the backend can write, two words per row for
  // `host`, and some rows of logits. It must outlive all steps, which are recorded with its
  // address.
  void fetch_to(std::span<std::int32_t> host, std::span<float> logits) {
    fetched_ = host;
    fetched_logits_ = logits;
  }
  // `vocab`: the width of a row of logits. Only its first `tokens` tokens may be chosen.
  struct Width {
    std::int64_t vocab = 0;
    std::int64_t tokens = 0;
  };
  // Call before the step, with its items. An item whose parameters need no history may compute a
  // token that is not known yet.
  void collect(std::span<const StepItem> items, const OpTable& ops, Width width);
  // Whether the backend chooses the token of any row.
  bool any() const { return way_ != Way::kNone; }
  std::int64_t rows() const { return results_.shape[1]; }
  // Whether the logits may be overwritten once the step is over: the backend chooses all rows
  // except a few last ones, whose logits come to the host with the step.
  bool needs_no_logits() const { return !needs_logits_; }
  // Identifies what is enqueued in addition to the model's kernels.
  std::uint64_t key() const;
  // Call within the step, before anything else takes scratch memory: returns where the ids will be
  // on the backend, which is the same place for steps of equally many rows.
  const std::int32_t* place(ExecContext& ctx, std::int64_t rows);
  // Call within the step, after the logits are enqueued. `logits`: F32 [rows, vocab].
  void enqueue(ExecContext& ctx, Backend& backend, const TensorView& logits);
  // Call when the step is over. What `output` refers to is valid until the next collect().
  void read(StepOutput& output);

 private:
  enum class Way { kNone, kLikeliest, kSample };
  void add_rows(const StepItem& item);
  void add_counts(const StepItem& item, std::span<const std::int32_t> history);
  bool add_edits(const StepItem& item, std::span<const std::int32_t> history, SampleRule& rule);
  void add_biases(const StepItem& item, std::size_t begin);
  std::int64_t edit_room() const;
  void find_hosted();
  void choose(ExecContext& ctx, Backend& backend, const TensorView& whole);
  std::size_t fetched_bytes() const;

  Way way_ = Way::kNone;
  bool reports_ = false;  // some row's log-probability is wanted
  bool needs_logits_ = false;
  std::int64_t hosted_ = 0;  // last rows whose logits come to the host with the step
  Width width_;
  std::vector<SampleRule> rules_;
  std::vector<LogitEdit> edits_;
  TensorView results_;               // I32 [2, rows] on the backend: ids, log-probabilities
  std::span<std::int32_t> fetched_;  // [2, rows]: the results on the host
  std::span<float> fetched_logits_;  // [hosted_, vocab] on the host
  std::vector<float> log_probabilities_;
  PenaltyCounts counts_;               // for items that bring none
  std::vector<std::int32_t> edit_at_;  // [tokens] 1 + a token's index in edits_; all 0 between rows
};

}  // namespace bl
