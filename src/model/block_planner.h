#pragma once
#include <initializer_list>
#include <string>

#include "model/load_planner.h"
#include "model/model_spec.h"

namespace bl {

// Plans the tasks of one block: finds its tensors under the names that its architecture gives them.
class BlockPlanner {
 public:
  BlockPlanner(const ModelSpec& model, LoadPlanner& planner) : model_(model), planner_(planner) {}

  void plan(std::size_t layer);

 private:
  // Numbers of the linears that project queries, keys and values: three, or `qkv` alone; −1: none.
  struct Projections {
    std::int32_t q = -1, k = -1, v = -1, qkv = -1;
  };
  void attention(const AttentionSpec& spec, const AttentionArch& arch);
  Projections projections(const AttentionSpec& spec, const AttentionArch& arch,
                          const std::string& at);
  Projections parts_of_fused(const AttentionSpec& spec, const AttentionArch& arch,
                             const std::string& key);
  // Adds the names that adapters may know queries, keys and values by, apart or fused.
  void projection_sites(const AttentionSpec& spec, const AttentionArch& arch, const std::string& at,
                        const Projections& linears);
  // Refuses stored biases that the config denies: transformers would ignore them. `key`: the key
  // that denies them; empty: they may be there.
  void refuse_biases(const std::string& at, std::initializer_list<const Names*> linears,
                     const std::string& key) const;
  void moe(const MoeSpec& spec, const MoeArch& arch);
  void router(const MoeSpec& spec, const MoeArch& arch, const std::string& at);
  void norm(Role role, const std::optional<NormSpec>& spec, const std::optional<NormArch>& arch);
  void head_norm(Role role, const QkNormSpec& spec, const NormArch& arch, Shape heads);
  std::string at_block(const std::string& name) const { return join_name(prefix_, name); }
  LoadTarget target(Role role, std::int32_t index = -1) const { return {role, layer_, index}; }

  const ModelSpec& model_;
  LoadPlanner& planner_;
  std::int32_t layer_ = 0;
  std::string prefix_;        // "model.layers.3"
  std::string attention_at_;  // "model.layers.3.self_attn"
};

}  // namespace bl
