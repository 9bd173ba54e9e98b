#pragma once
#include <string>
#include <vector>

#include "model/arch_evaluator.h"
#include "model/model_spec.h"

namespace bl {

// Joins the description of one block with a config: sizes, kinds and scales of its layers.
class BlockBuilder {
 public:
  // Rope tables are collected in `model`, where equal ones are shared.
  BlockBuilder(const ArchSpec& arch, const ArchEvaluator& config, const SpecOptions& options,
               ModelSpec& model)
      : arch_(arch), config_(config), options_(options), model_(model) {}

  BlockSpec build(std::int64_t layer, const std::string& type, const BlockArch& block);
  DeniedBiases denied_biases(std::int64_t layer, const BlockArch& block) const;

 private:
  std::optional<NormSpec> norm(const std::optional<NormArch>& arch, const ArchEvaluator& at) const;
  std::optional<QkNormSpec> qk_norm(const std::optional<QkNormArch>& arch,
                                    const ArchEvaluator& at) const;
  AttentionSpec attention(const AttentionArch& arch, const ArchEvaluator& at,
                          const std::string& type);
  void attention_numbers(const AttentionArch& arch, const ArchEvaluator& at,
                         AttentionSpec& spec) const;
  void attention_rope(const RopeArch& arch, const ArchEvaluator& at, const std::string& type,
                      AttentionSpec& spec);
  FeedForwardSpec feed_forward(const FeedForwardArch& arch, const ArchEvaluator& at) const;
  MoeSpec moe(const MoeArch& arch, const ArchEvaluator& at) const;
  void feed_forwards(const BlockArch& block, std::int64_t layer, const ArchEvaluator& at,
                     BlockSpec& spec) const;
  int rope_index(const RopeSpec& spec);

  const ArchSpec& arch_;
  const ArchEvaluator& config_;
  const SpecOptions& options_;
  ModelSpec& model_;
};

// Returns the norm that `arch` describes on top of the model's defaults; nothing if its condition
// fails.
std::optional<NormSpec> build_norm(const ArchSpec& model, const std::optional<NormArch>& arch,
                                   const ArchEvaluator& at);

}  // namespace bl
