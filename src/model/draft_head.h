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
// Their keys and values of a text's positions are functions of the model's own hidden states there,
// so they are written in the model's steps, into layers of the same pages: a page that is shared,
// copied, moved or saved takes them along. What guessing writes lies behind the text, where the
// next step writes again.
class DraftHead {
 public:
  struct Parts {
    DraftSpec spec;
    Linear combine;  // [combined(), hidden]
    Norm norm, embed_norm;
    std::vector<Norm> state_norms;  // one a state, or none
    std::vector<Block> blocks;
    Norm final_norm;
    RopeBank ropes;
  };
  DraftHead(Backend& backend, Parts parts) : backend_(backend), parts_(std::move(parts)) {}

  const DraftSpec& spec() const { return parts_.spec; }
  int kv_layers() const { return static_cast<int>(parts_.blocks.size()); }
  // Whether every token's state behind so many of the model's blocks is read.
  bool reads(std::size_t blocks) const;

  // One step's tokens and hidden states, side by side.
  struct States {
    const std::int32_t* ids = nullptr;    // [tokens], where the step has them
    TensorView rows;                      // F32 [tokens, width()]
    const std::int32_t* order = nullptr;  // [tokens] 0, 1, …
  };
  // From ctx.scratch.
  States take_states(ExecContext& ctx, const std::int32_t* ids, std::int64_t tokens) const;
  // x: F32 [tokens, hidden], what the stream holds behind so many blocks; kept where it is read.
  void keep(ExecContext& ctx, std::int32_t blocks, const TensorView& x, const States& to) const;

  // What the model lends.
  struct Lent {
    const Embedding& embedding;
    const Norm& final_norm;
    std::span<const PagedKvView> layers;  // of the side layers
  };
  // Keys and values of the step's tokens, and the states that the batch wants carried. `step`: of
  // the model.
  void write(ExecContext& ctx, const StepInputs& step, const StepBatch& batch, const States& states,
             const Lent& lent) const;

  // Guesses behind texts: a stretch behind each, at positions [past, past + tokens) of its pages,
  // which hold the features before them; or one token, of a chain, and the state before it. h: F32
  // [logit_rows, hidden], what the model's head reads of the wanted rows.
  void forward(ExecContext& ctx, const StepBatch& batch, const Lent& lent,
               const TensorView& h) const;
  // Backend::step_key of such a step.
  std::uint64_t step_key(const StepBatch& batch) const;

  // Scratch that a step of the model takes beside its own.
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
