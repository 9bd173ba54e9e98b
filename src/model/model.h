#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/adapter_sites.h"
#include "model/draft_head.h"
#include "model/model_spec.h"
#include "model/step_batch.h"
#include "nn/embedding.h"
#include "nn/rope.h"
#include "ops/backend.h"

namespace bl {

// What the scratch of a step depends on besides the number of tokens.
struct WorkShape {
  const ModelSpec& spec;
  std::int64_t max_in = 0;           // widest input of a product
  std::int64_t max_slots = 0;        // widest input as packed
  std::int64_t max_out = 0;          // widest output
  const DraftSpec* draft = nullptr;  // side layers, which the widths include; null: none
};
// Returns an upper bound of the scratch bytes of a step with this many tokens and rows of logits.
std::size_t model_work_bytes(const WorkShape& shape, const Backend& backend, std::int64_t tokens,
                             std::int64_t logit_rows);

// A model in a backend's memory: embedding, blocks, final norm, head.
class Model {
 public:
  struct Parts {
    ModelSpec spec;
    Embedding embedding;
    std::vector<Block> blocks;  // one per layer; empty for layers that do not run
    Norm final_norm;
    Linear head;
    RopeBank ropes;
    std::unique_ptr<DraftHead> draft;  // null: none
    std::int64_t max_in = 0;
    std::int64_t max_slots = 0;
    std::int64_t max_out = 0;
    AdapterSites adapter_sites;
  };
  Model(Backend& backend, Parts parts) : backend_(backend), parts_(std::move(parts)) {}

  const ModelSpec& spec() const { return parts_.spec; }
  std::int64_t vocab() const { return parts_.spec.vocab; }
  // Bytes of the embedding's tables. A step reads only a few rows of them.
  std::size_t embedding_bytes() const { return parts_.embedding.bytes(); }
  // Rows of the embedding; token ids must be below.
  std::int64_t embedding_rows() const { return parts_.embedding.table().rows(); }
  // The side layers that guess how texts continue; null: none.
  const DraftHead* draft_head() const { return parts_.draft.get(); }
  // The cache layout of each layer with attention, in the order of forward()'s `layers`; side
  // layers come last.
  std::vector<KvLayout> kv_layouts(CacheTypes type) const;
  int kv_layers() const {
    return parts_.spec.kv_layers() + (parts_.draft ? parts_.draft->kv_layers() : 0);
  }
  const AdapterSites& adapter_sites() const { return parts_.adapter_sites; }

  std::size_t work_bytes(std::int64_t tokens, std::int64_t logit_rows) const;

  // Returns logits F32 [logit_rows, vocab] of the wanted rows, valid until the scratch is released.
  // Writes the keys and values of the step into `layers`. Throws kInvalidArgument for an id without
  // an embedding, kLimit for a position beyond the learned ones.
  TensorView forward(ExecContext& ctx, const StepBatch& batch,
                     std::span<const PagedKvView> layers) const;

  // The next three functions compute forward() one block at a time. The caller keeps the hidden
  // states x: F32 [tokens, hidden], contiguous, in the backend's memory. Each function needs only
  // the parts of the model that it runs, and no more scratch than forward(). With whole sequences,
  // the keys and values of one block at a time are enough (model/whole_sequences.h). Side layers do
  // not run. The only StateRows that are served are kNormed ones, by logits().

  // Writes the states that enter the first block to x. Throws like forward().
  void embed(ExecContext& ctx, const StepBatch& batch, const TensorView& x) const;
  // Runs block `number` of spec().order: x holds the states that enter it, and then those that
  // leave.
  void run_block(ExecContext& ctx, const StepBatch& batch, std::span<const PagedKvView> layers,
                 std::size_t number, const TensorView& x) const;
  // Returns logits like forward(). x holds the states that leave the last block; it does not
  // change.
  TensorView logits(ExecContext& ctx, const StepBatch& batch, const TensorView& x) const;

  // Returns logits F32 [logit_rows, vocab] of guesses, valid as above: the draft head's for the
  // wanted rows of a stretch behind each text (DraftHead::forward). The positions of the texts in
  // their pages do not change. Throws kInvalidArgument for an id without an embedding.
  TensorView draft(ExecContext& ctx, const StepBatch& batch,
                   std::span<const PagedKvView> layers) const;

  // Calls v(name, Linear&) for every linear of the blocks that is present, and for the head.
  template <class V>
  void visit(V&& v) {
    for (std::size_t i = 0; i < parts_.blocks.size(); ++i) {
      const std::string prefix = "blocks." + std::to_string(i) + ".";
      parts_.blocks[i].visit([&](const std::string& name, Linear& linear) {
        if (!linear.empty()) v(prefix + name, linear);
      });
    }
    v(std::string("head"), parts_.head);
  }

 private:
  void check_tokens(const StepBatch& batch) const;
  void check_ids(const StepBatch& batch) const;
  void check_rows(const StepBatch& batch) const;
  void check_states(const StepBatch& batch, const TensorView& x) const;
  DraftHead::Lent lent_to_draft(std::span<const PagedKvView> layers) const;
  // Copies the states that are wanted after `blocks` blocks. x: all rows of the step, or the wanted
  // ones.
  void copy_states(ExecContext& ctx, const StepBatch& batch, std::int32_t blocks,
                   const TensorView& x) const;
  // What happens to the head's products.
  struct HeadScale {
    float multiplier = 1.0f;
    float softcap = 0.0f;
  };
  void head_of(ExecContext& ctx, const LayerInput& h, const HeadScale& scale,
               const TensorView& logits) const;
  // Runs the final norm and the head on the wanted rows, x [logit_rows, hidden]. x may change.
  void finish(ExecContext& ctx, const StepBatch& batch, const TensorView& x,
              const TensorView& logits) const;
  // Returns the keys and values of block `number` of the order; null if it has no attention.
  const PagedKvView* keys_of(std::size_t number, std::span<const PagedKvView> layers) const;
  // The attention of the block that runs after number `block` of the order, if there is one.
  // `caches`: those of the later blocks.
  std::optional<AttentionArgs> next_attention(std::size_t block, const StepInputs& step,
                                              std::span<const PagedKvView> caches) const;
  // The weights that are read first after number `block` of the order: the next block's or the
  // head's.
  NextWeights weights_behind(std::size_t block) const;
  // If all rows are kept, `kept.x` becomes the residual stream.
  void run_blocks(ExecContext& ctx, const StepBatch& batch, std::span<const PagedKvView> layers,
                  const PartialSumRoom& room, KeptRows& kept) const;

  Backend& backend_;
  Parts parts_;
};

}  // namespace bl
