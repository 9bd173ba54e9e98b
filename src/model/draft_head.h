#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/draft_spec.h"
#include "model/step_batch.h"
#include "nn/embedding.h"
#include "nn/rope.h"
#include "ops/backend.h"

namespace bl {

// The side layers of a DraftSpec in a backend's memory, run by the model that they guess for.
//
// Their keys and values at a text's positions are functions of the model's own hidden states there,
// so the model's steps write them, into further layers of the same pages: a page that is shared,
// copied, moved or saved takes them along. Guessing writes only behind the end of the text, where
// the next step overwrites it.
class DraftHead {
 public:
  struct Parts {
    DraftSpec spec;
    Linear combine;  // [combined(), hidden]
    Norm norm, embed_norm;
    std::vector<Norm> state_norms;  // one per state, or none
    std::vector<Block> blocks;
    Norm final_norm;
    RopeBank ropes;
  };
  DraftHead(Backend& backend, Parts parts) : backend_(backend), parts_(std::move(parts)) {}

  const DraftSpec& spec() const { return parts_.spec; }
  int kv_layers() const { return static_cast<int>(parts_.blocks.size()); }
  // Whether the head reads every token's state after `blocks` of the model's blocks.
  bool reads(std::size_t blocks) const;

  // One step's tokens and hidden states, side by side.
  struct States {
    const std::int32_t* ids = nullptr;    // [tokens], if the step has them
    TensorView rows;                      // F32 [tokens, width()]
    const std::int32_t* order = nullptr;  // [tokens] 0, 1, …
  };
  // Takes memory for the states from ctx.scratch.
  States take_states(ExecContext& ctx, const std::int32_t* ids, std::int64_t tokens) const;
  // Copies x, the stream F32 [tokens, hidden] after `blocks` blocks, into the states that it is one
  // of.
  void keep(ExecContext& ctx, std::int32_t blocks, const TensorView& x, const States& to) const;

  // What the head borrows from the model.
  struct Lent {
    const Embedding& embedding;
    const Norm& final_norm;
    std::span<const PagedKvView> layers;  // cache of the side layers
  };
  // Writes keys and values of the step's tokens, and the states that the batch wants carried.
  // `step`: the inputs of the model's step.
  void write(ExecContext& ctx, const StepInputs& step, const StepBatch& batch, const States& states,
             const Lent& lent) const;

  // Guesses how texts continue. Each sequence of the batch is a stretch at positions [past, past +
  // tokens) of pages that hold the features before them; for a chain, it is one token and the state
  // before it. h: F32 [logit_rows, hidden], the wanted rows as the model's head will read them.
  void forward(ExecContext& ctx, const StepBatch& batch, const Lent& lent,
               const TensorView& h) const;
  // Backend::step_key() of such a step.
  std::uint64_t step_key(const StepBatch& batch) const;

  // Scratch bytes that the head adds to a step of the model.
  static std::size_t work_bytes(const DraftSpec& spec, std::int64_t tokens);

 private:
  bool is_causal(std::size_t layer) const;
  const std::int32_t* upload(ExecContext& ctx, const std::vector<std::int32_t>& values) const;
  TensorView chained(ExecContext& ctx, const std::int32_t* ids, const TensorView& before,
                     const Lent& lent) const;
  TensorView chained_features(ExecContext& ctx, const StepBatch& batch, const States& states,
                              const Lent& lent) const;
  void run_blocks(ExecContext& ctx, StepInputs& step, const StepBatch& batch, const Lent& lent,
                  const TensorView& x) const;

  Backend& backend_;
  Parts parts_;
};

}  // namespace bl
