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

// What the rows of a step are to become on the backend: rows of items that say by what they are
// sampled are chosen there, the others come to the host as logits.
//
// Goals: a choice is what SamplerChain makes of the same row, up to the rounding of sums; what a
// step enqueues depends on key() and the number of rows alone, so that it can be recorded.
class DeviceRows {
 public:
  // Where results come to: host memory that the backend reaches and that outlives all steps, which
  // may be recorded with its address; two words a row, and room for some rows of logits.
  void fetch_to(std::span<std::int32_t> host, std::span<float> logits) {
    fetched_ = host;
    fetched_logits_ = logits;
  }
  // How wide rows of logits are, and how many of a row's tokens may be chosen: its first ones.
  struct Width {
    std::int64_t vocab = 0;
    std::int64_t tokens = 0;
  };
  // Before the step: `items` as they are now, for a backend with these ops. Of an item without
  // history the tokens that it computes need not be known.
  void collect(std::span<const StepItem> items, const OpTable& ops, Width width);
  // Whether any row is chosen on the backend.
  bool any() const { return way_ != Way::kNone; }
  std::int64_t rows() const { return results_.shape[1]; }
  // Whether the logits may be overwritten when the step is over: every row is chosen on the
  // backend, but for a few last ones that come to the host with the step.
  bool needs_no_logits() const { return !needs_logits_; }
  // Of what is enqueued beside the model's launches.
  std::uint64_t key() const;
  // Within the step, before anything else takes scratch: where the ids will be. Steps of equally
  // many rows have them in the same place.
  const std::int32_t* place(ExecContext& ctx, std::int64_t rows);
  // Within the step, behind the logits.
  void enqueue(ExecContext& ctx, Backend& backend, const TensorView& logits);
  // When the step is over. Valid until the next one is collected.
  void read(StepOutput& output);

 private:
  enum class Way { kNone, kLikeliest, kSample };
  void add_rows(const StepItem& item);
  bool add_edits(const SamplingParams& params, std::span<const TokenCounts::Count> counts,
                 SampleRule& rule);
  void add_biases(const SamplingParams& params, std::size_t begin);
  std::int64_t edit_room() const;
  void find_hosted();
  void choose(ExecContext& ctx, Backend& backend, const TensorView& whole);
  std::size_t fetched_bytes() const;

  Way way_ = Way::kNone;
  bool reports_ = false;  // some row's log-probability is wanted
  bool needs_logits_ = false;
  std::int64_t hosted_ = 0;  // last rows, which are the host's and come to it with the step
  Width width_;
  std::vector<SampleRule> rules_;
  std::vector<LogitEdit> edits_;
  TensorView results_;               // I32 [2, rows] on the backend: ids, log-probabilities
  std::span<std::int32_t> fetched_;  // the same here
  std::span<float> fetched_logits_;  // [hosted_, vocab]
  std::vector<float> log_probabilities_;
  TokenCounts counts_;                 // of texts that come without
  std::vector<std::int32_t> edit_at_;  // [tokens] 1 + a token's index in edits_; 0 between rows
};

}  // namespace bl
