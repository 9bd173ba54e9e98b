#pragma once
// Low-rank adapters (LoRA, arXiv 2106.09685): beside y = x · W, some rows of a step get
// y += weight · scale · (x · A) · B. An adapter may also bring an embedding or a head of its own,
// which stands for `weight` parts of the model's.
//
// Goals: any number of adapters in a step, other ones for each row, on weights of any format and on
// every backend; a step without adapters is as if this file did not exist. Non-goals: changing W
// (model/lora_merge.h does).

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "ops/packed_matrix.h"
#include "tensor/tensor.h"

namespace bl {

// What one adapter adds to some columns of one linear.
struct LoraDelta {
  std::shared_ptr<const PackedMatrix> down;  // A [in, rank]
  std::shared_ptr<const PackedMatrix> up;    // B [rank, columns]
  std::int64_t first_column = 0;             // of the linear's output
  float scale = 1.0f;                        // alpha / rank, or alpha / √rank
};

// What one adapter adds to the rows of the embedding: scale · A[id] · B.
struct LoraEmbedding {
  Tensor rows;                             // A [vocab, rank] F32 / F16 / BF16
  std::shared_ptr<const PackedMatrix> up;  // B [rank, hidden]; null: nothing
  float scale = 1.0f;
};

// One adapter in a backend's memory, attached to the linears of one model by their ids.
class LoraAdapter {
 public:
  void add(std::int32_t linear, LoraDelta delta);
  void set_embedding(LoraEmbedding embedding) { embedding_ = std::move(embedding); }
  // A matrix [in, out] to stand for that of a linear without a bias, all of whose outputs are
  // written anew (a head).
  void replace(std::int32_t linear, std::shared_ptr<const PackedMatrix> matrix);
  // [vocab, hidden] F32 / F16 / BF16, for the model's.
  void set_table(Tensor table) { table_ = std::move(table); }

  std::span<const LoraDelta> of(const Linear& linear) const;
  // Whether there is any for a linear whose id is in [first, end).
  bool touches(std::int32_t first, std::int32_t end) const;
  const LoraEmbedding& embedding() const { return embedding_; }
  const PackedMatrix* replacement(const Linear& linear) const;  // null: none
  TensorView table() const { return table_.view(); }            // empty: none

 private:
  std::vector<std::vector<LoraDelta>> deltas_;  // by linear
  std::set<std::int32_t> linears_;              // that have some
  LoraEmbedding embedding_;
  std::map<std::int32_t, std::shared_ptr<const PackedMatrix>> replacements_;  // by linear
  Tensor table_;
};

// Adapters with their weights: what a sequence is computed with. Their order is their meaning's
// (sums of floats), so equal mixes list them alike.
struct WeightedAdapter {
  std::shared_ptr<const LoraAdapter> adapter;
  float weight = 1.0f;
  bool operator==(const WeightedAdapter&) const = default;
};
using AdapterMix = std::vector<WeightedAdapter>;

// A run of rows that have the same mix.
struct AdapterRows {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  const AdapterMix* mix = nullptr;
};

// What ExecContext::adapters says about the rows of a step: runs in order, without overlap; rows in
// none have no adapter.
struct StepAdapters {
  std::int64_t rows = 0;  // of the whole step
  std::vector<AdapterRows> runs;
  // Puts the next `count` rows behind what is there; joins them to an equal run.
  void append(const AdapterMix* mix, std::int64_t count);
};

// Ranks are padded with zeros to a multiple of this: kernels like it.
inline constexpr std::int64_t kLoraRankStep = 8;
// The largest rank there can be, padded.
inline constexpr std::int64_t kMaxLoraRank = 4096;

// outputs_j += multiplier · what the adapters of ctx add to x · W_j, or have it be. `x` is what the
// linears read, normalised. Does nothing where ctx has no adapters.
void add_lora(ExecContext& ctx, const TensorView& x, std::span<const LinearOutput> outputs,
              float multiplier);
// The same for embedded rows [tokens, hidden].
void add_lora_embedding(ExecContext& ctx, const std::int32_t* ids, const TensorView& out,
                        float multiplier);
// Scratch that they take in a step of so many tokens.
std::size_t lora_work_bytes(std::int64_t tokens);

}  // namespace bl
