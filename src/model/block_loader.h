#pragma once
#include <string>

#include "model/model_spec.h"
#include "model/weight_reader.h"
#include "nn/block.h"

namespace bl {

// Finds the tensors of one block under the names that its architecture gives them. Called once a
// walk of the reader; in the first the result is a shell without weights.
class BlockLoader {
 public:
  BlockLoader(const ModelSpec& model, WeightReader& reader) : model_(model), reader_(reader) {}

  Block load(std::size_t layer);

 private:
  Attention attention(const AttentionSpec& spec, const AttentionArch& arch);
  void projections(const AttentionSpec& spec, const AttentionArch& arch, const std::string& at,
                   Attention::Weights& weights);
  // The names that adapters may know queries, keys and values by, apart or fused.
  void projection_sites(const AttentionSpec& spec, const AttentionArch& arch, const std::string& at,
                        const Attention::Weights& weights);
  void grouped_projections(const AttentionSpec& spec, const AttentionArch& arch,
                           const std::string& key, Attention::Weights& weights);
  FeedForward feed_forward(const FeedForwardSpec& spec, const FeedForwardArch& arch);
  Moe moe(const MoeSpec& spec, const MoeArch& arch);
  void router(const MoeSpec& spec, const MoeArch& arch, const std::string& at,
              Moe::Weights& weights);
  Norm norm(const std::optional<NormSpec>& spec, const std::optional<NormArch>& arch);
  Norm head_norm(const QkNormSpec& spec, const NormArch& arch, const std::string& at, Shape heads);
  std::string at_block(const std::string& name) const { return join_name(prefix_, name); }

  const ModelSpec& model_;
  WeightReader& reader_;
  std::string prefix_;  // "model.layers.3"
};

}  // namespace bl
