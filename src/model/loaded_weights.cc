#include "model/loaded_weights.h"

#include "base/check.h"

namespace bl {

FeedForward::Weights& LoadedWeights::feed_forward(const LoadTarget& target) {
  LoadedBlock& to = block(target);
  return target.index == kSharedExpert ? to.shared_expert : to.feed_forward;
}

Linear& LoadedWeights::expert_linear(const LoadTarget& target) {
  std::vector<Moe::Expert>& experts = block(target).moe.experts;
  const auto index = static_cast<std::size_t>(target.index);
  if (experts.size() <= index) experts.resize(index + 1);
  Moe::Expert& expert = experts[index];
  BL_CHECK(target.role == Role::kGate || target.role == Role::kUp || target.role == Role::kDown);
  return target.role == Role::kGate ? expert.gate
         : target.role == Role::kUp ? expert.up
                                    : expert.down;
}

Linear& LoadedWeights::linear(const LoadTarget& target) {
  if (target.index >= 0) return expert_linear(target);
  switch (target.role) {
    case Role::kHead:
      return head;
    case Role::kDraftCombine:
      return combine;
    case Role::kQ:
      return block(target).attention.q;
    case Role::kK:
      return block(target).attention.k;
    case Role::kV:
      return block(target).attention.v;
    case Role::kQkv:
      return block(target).attention.qkv;
    case Role::kAttentionGate:
      return block(target).attention.gate;
    case Role::kO:
      return block(target).attention.o;
    case Role::kGate:
      return feed_forward(target).gate;
    case Role::kUp:
      return feed_forward(target).up;
    case Role::kGateUp:
      return feed_forward(target).gate_up;
    case Role::kRouter:
      return block(target).moe.router;
    case Role::kSharedExpertGate:
      return block(target).moe.shared_gate;
    default:
      BL_CHECK(target.role == Role::kDown);
      return feed_forward(target).down;
  }
}

Norm& LoadedWeights::norm(const LoadTarget& target) {
  switch (target.role) {
    case Role::kEmbedNorm:
      return embed_norm;
    case Role::kFinalNorm:
      return final_norm;
    case Role::kDraftNorm:
      return draft_norm;
    case Role::kDraftEmbedNorm:
      return draft_embed_norm;
    case Role::kDraftStateNorm:
      state_norms.resize(std::max(state_norms.size(), static_cast<std::size_t>(target.index) + 1));
      return state_norms[static_cast<std::size_t>(target.index)];
    case Role::kAttentionNorm:
      return block(target).attention_norm;
    case Role::kAttentionPostNorm:
      return block(target).attention_post_norm;
    case Role::kFeedForwardNorm:
      return block(target).feed_forward_norm;
    case Role::kFeedForwardPostNorm:
      return block(target).feed_forward_post_norm;
    case Role::kDensePostNorm:
      return block(target).dense_post_norm;
    case Role::kMoeNorm:
      return block(target).moe_norm;
    case Role::kMoePostNorm:
      return block(target).moe_post_norm;
    case Role::kQNorm:
      return block(target).attention.q_norm;
    case Role::kKNorm:
      return block(target).attention.k_norm;
    case Role::kVNorm:
      return block(target).attention.v_norm;
    default:
      BL_CHECK(target.role == Role::kRouterNorm);
      return block(target).moe.router_norm;
  }
}

Tensor& LoadedWeights::vector(const LoadTarget& target) {
  switch (target.role) {
    case Role::kSinks:
      return block(target).attention.sinks;
    case Role::kAlibiSlopes:
      return block(target).attention.alibi_slopes;
    case Role::kSelectionBias:
      return block(target).moe.selection_bias;
    case Role::kExpertScale:
      return block(target).moe.expert_scale;
    default:
      BL_CHECK(target.role == Role::kExpertZeros);
      return block(target).moe.zeros;
  }
}

HostArray& LoadedWeights::table(const LoadTarget& target) {
  BL_CHECK(target.role == Role::kEmbedding || target.role == Role::kPositions);
  return target.role == Role::kEmbedding ? embedding : positions;
}

float& LoadedWeights::scalar(const LoadTarget& target) {
  switch (target.role) {
    case Role::kOutputScale:
      return block(target).output_scale;
    case Role::kXieluAlphaP:
      return feed_forward(target).xielu_alpha_p;
    case Role::kXieluAlphaN:
      return feed_forward(target).xielu_alpha_n;
    case Role::kXieluBeta:
      return feed_forward(target).xielu_beta;
    default:
      BL_CHECK(target.role == Role::kXieluEps);
      return feed_forward(target).xielu_eps;
  }
}

Block make_block(Backend& backend, const ModelSpec& model, std::size_t layer, LoadedBlock loaded) {
  const BlockSpec& spec = model.blocks[layer];
  Block::Weights weights;
  weights.attention_norm = std::move(loaded.attention_norm);
  weights.attention_post_norm = std::move(loaded.attention_post_norm);
  weights.feed_forward_norm = std::move(loaded.feed_forward_norm);
  weights.feed_forward_post_norm = std::move(loaded.feed_forward_post_norm);
  weights.dense_post_norm = std::move(loaded.dense_post_norm);
  weights.moe_norm = std::move(loaded.moe_norm);
  weights.moe_post_norm = std::move(loaded.moe_post_norm);
  weights.output_scale = loaded.output_scale;
  if (spec.attention) {
    Attention::Rotation rotation;
    if (spec.attention->rope >= 0) {
      const RopeSpec& rope = model.ropes[static_cast<std::size_t>(spec.attention->rope)];
      rotation = {rope.rotated, rope.style};
    }
    weights.attention = {*spec.attention, rotation, std::move(loaded.attention)};
  }
  if (spec.feed_forward)
    weights.feed_forward = {*spec.feed_forward, std::move(loaded.feed_forward)};
  if (spec.moe) {
    Moe::Weights& moe = loaded.moe;
    moe.fused_gate_up = spec.moe->expert.gated && moe.experts.at(0).gate.empty();
    if (spec.moe->shared) moe.shared = {*spec.moe->shared, std::move(loaded.shared_expert)};
    weights.moe = Moe(*spec.moe, std::move(moe));
    weights.moe.pack(backend);
  }
  return {spec, std::move(weights)};
}

Model::Parts make_parts(Backend& backend, const ModelSpec& model, const LoadPlan& plan,
                        const LoadRange& range, LoadedWeights loaded) {
  Model::Parts parts;
  parts.spec = model;
  parts.embedding = Embedding(std::move(loaded.embedding), model.embed_multiplier);
  parts.embedding.set_positions(std::move(loaded.positions));
  parts.embedding.set_norm(std::move(loaded.embed_norm));
  for (std::size_t i = 0; i < model.blocks.size(); ++i) {
    const bool here = model.runs(i) && range.contains({.block = static_cast<std::int32_t>(i)});
    parts.blocks.push_back(here ? make_block(backend, model, i, std::move(loaded.blocks[i]))
                                : Block({}, {}));
  }
  parts.final_norm = std::move(loaded.final_norm);
  parts.head = std::move(loaded.head);
  parts.ropes = RopeBank(backend, model.ropes);
  const LoadTotals totals = plan.totals(range);
  parts.max_in = totals.max_in;
  parts.max_slots = totals.max_slots;
  parts.max_out = totals.max_out;
  parts.adapter_sites = plan.sites;
  return parts;
}

}  // namespace bl
