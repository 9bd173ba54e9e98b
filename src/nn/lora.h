#pragma once
// Low-rank adapters (LoRA, arXiv 2106.09685). Besides y = x · W, some rows of a step get y +=
// weight · scale · (x · A) · B. An adapter may also bring an embedding or a head of its own, which
// replaces the share `weight` of the model's.
//
// Goals: any number of adapters in a step, different ones for each row, on weights of any format
// and on every backend; steps without adapters pay nothing. Non-goal: changing W
// (model/lora_merge.h does that).

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

// What one adapter adds to a range of columns of one linear.
struct LoraDelta {
  std::shared_ptr<const PackedMatrix> down;  // A [in, rank]
  std::shared_ptr<const PackedMatrix> up;    // B [rank, columns]
  std::int64_t first_column = 0;             // in the linear's output
  float scale = 1.0f;                        // alpha / rank, or alpha / √rank
};

// What one adapter adds to the embedding's rows: scale · A[id] · B.
struct LoraEmbedding {
  Tensor rows;                             // A [vocab, rank] F32 / F16 / BF16
  std::shared_ptr<const PackedMatrix> up;  // B [rank, hidden]; null: nothing
  float scale = 1.0f;
};

// One adapter in a backend's memory. It knows the linears of a model by their ids.
class LoraAdapter {
 public:
  void add(std::int32_t linear, LoraDelta delta);
  void set_embedding(LoraEmbedding embedding) { embedding_ = std::move(embedding); }
  // Replaces the matrix of a linear by `matrix` [in, out]. The linear must have no bias, and all of
  // its outputs must be overwritten by each product, as for a head.
  void replace(std::int32_t linear, std::shared_ptr<const PackedMatrix> matrix);
  // Replaces the model's embedding table by one of [vocab, hidden] in F32, F16 or BF16.
  void set_table(Tensor table) { table_ = std::move(table); }

  std::span<const LoraDelta> of(const Linear& linear) const;
  // Whether it changes a linear with an id in [first, end).
  bool touches(std::int32_t first, std::int32_t end) const;
  const LoraEmbedding& embedding() const { return embedding_; }
  const PackedMatrix* replacement(const Linear& linear) const;  // null: none
  TensorView table() const { return table_.view(); }            // empty: none

 private:
  std::vector<std::vector<LoraDelta>> deltas_;  // indexed by linear id
  std::set<std::int32_t> linears_;              // ids of the linears that it changes
  LoraEmbedding embedding_;
  std::map<std::int32_t, std::shared_ptr<const PackedMatrix>> replacements_;  // by linear id
  Tensor table_;
};

// Adapters with their weights, as a sequence is computed with them. The order matters for the
// rounding of sums, so equal mixes must list them in the same order.
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

// The adapters of the rows of a step (ExecContext::adapters): runs in ascending order, without
// overlap. Rows outside all runs have no adapter.
struct StepAdapters {
  std::int64_t rows = 0;  // number of rows of the whole step
  std::vector<AdapterRows> runs;
  // Appends `count` rows with this mix, joining them to the last run if its mix is equal.
  void append(const AdapterMix* mix, std::int64_t count);
};

// Ranks are padded with zeros to a multiple of this, which kernels are fast for.
inline constexpr std::int64_t kLoraRankStep = 8;
// The largest rank that is supported, after padding.
inline constexpr std::int64_t kMaxLoraRank = 4096;

// outputs_j += multiplier · what the adapters of ctx add to x · W_j; adapters that replace W_j
// overwrite outputs_j. `x` is what the linears read, normalized. Does nothing if ctx has no
// adapters.
void add_lora(ExecContext& ctx, const TensorView& x, std::span<const LinearOutput> outputs,
              float multiplier);
// Does the same to embedded rows `out` [tokens, hidden].
void add_lora_embedding(ExecContext& ctx, const std::int32_t* ids, const TensorView& out,
                        float multiplier);
// Scratch bytes that these functions take in a step of `tokens` tokens.
std::size_t lora_work_bytes(std::int64_t tokens);

}  // namespace bl
