#include "model/tensor_outline.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "model/arch_evaluator.h"
#include "model/block_builder.h"
#include "model/config_keys.h"
#include "model/load_planner.h"
#include "model/numbered_name.h"

namespace bl {
namespace {

// Lists the tensors of one block.
class BlockOutline {
 public:
  BlockOutline(const ModelSpec& model, const ArchEvaluator& config, std::int64_t layer,
               bool quantized)
      : model_(model),
        arch_(model.block_arch(static_cast<std::size_t>(layer))),
        at_(config.for_layer(layer, model.layers)),
        layer_(layer),
        quantized_(quantized),
        prefix_(with_number(model.arch->layer, "{i}", layer)) {}

  void list(TensorOutline& to);

 private:
  struct LinearShape {
    std::int64_t in = 0;
    std::int64_t out = 0;
    const ArchValue* bias = nullptr;  // null: it never has one
    bool transposed = false;
  };
  OutlinedLinear& linear(LinearRole role, const std::string& at, const Names& names,
                         const LinearShape& shape);
  void norm(const std::optional<NormSpec>& spec, const std::optional<NormArch>& arch,
            NormInput input);
  void head_norm(const NormSpec& spec, const NormArch& arch, std::int64_t width);
  void qk_norms(const AttentionSpec& spec, const AttentionArch& arch);
  void vector(VectorRole role, const std::string& at, const Names& names, std::int64_t size);
  void attention(const AttentionSpec& spec, const AttentionArch& arch);
  void projections(const AttentionSpec& spec, const AttentionArch& arch);
  void feed_forward(const FeedForwardSpec& spec, const FeedForwardArch& arch);
  void router(const MoeSpec& spec, const MoeArch& arch);
  RouterInput router_input(const MoeSpec& spec, const MoeArch& arch) const;
  void moe(const MoeSpec& spec, const MoeArch& arch);
  std::string in_block(const std::string& name) const { return join_name(prefix_, name); }

  const ModelSpec& model_;
  const BlockArch& arch_;
  ArchEvaluator at_;
  std::int64_t layer_;
  bool quantized_;
  std::string prefix_;  // "model.layers.3"
  TensorOutline* to_ = nullptr;
};

std::string weight_name(const std::string& prefix, const Names& names) {
  return join_name(prefix, names.at(0)) + ".weight";
}

bool has_bias(const ArchSpec& model, const NormArch& arch, const ArchEvaluator& at) {
  return at.flag("bias of a norm", arch.bias.given() ? arch.bias : model.norms.bias, false);
}

struct NormPlace {
  const ArchSpec& model;
  const ArchEvaluator& at;
  const std::string& prefix;
};

OutlinedNorm outlined(const NormPlace& place, const NormSpec& spec, const NormArch& arch,
                      std::int64_t width) {
  OutlinedNorm norm;
  norm.weight = weight_name(place.prefix, arch.name);
  if (has_bias(place.model, arch, place.at)) {
    norm.bias = join_name(place.prefix, arch.name.at(0)) + ".bias";
  }
  norm.width = width;
  norm.unit_offset = spec.unit_offset;
  return norm;
}

OutlinedLinear& BlockOutline::linear(LinearRole role, const std::string& at, const Names& names,
                                     const LinearShape& shape) {
  OutlinedLinear& linear = to_->linears.emplace_back();
  linear.role = role;
  linear.key = join_name(in_block(at), names.at(0));
  linear.in = shape.in;
  linear.out = shape.out;
  linear.transposed = shape.transposed;
  linear.bias = shape.bias != nullptr && at_.flag("bias of a linear", *shape.bias, false);
  linear.layer = layer_;
  return linear;
}

void BlockOutline::norm(const std::optional<NormSpec>& spec, const std::optional<NormArch>& arch,
                        NormInput input) {
  if (!spec || !spec->weighted) return;
  to_->norms.push_back(outlined({*model_.arch, at_, prefix_}, *spec, *arch, model_.hidden));
  to_->norms.back().input = input;
}

void BlockOutline::head_norm(const NormSpec& spec, const NormArch& arch, std::int64_t width) {
  if (!spec.weighted) return;
  const std::string at = in_block(arch_.attention->at);
  to_->norms.push_back(outlined({*model_.arch, at_, at}, spec, arch, width));
}

void BlockOutline::vector(VectorRole role, const std::string& at, const Names& names,
                          std::int64_t size) {
  to_->vectors.push_back({role, join_name(in_block(at), names.at(0)), size});
}

void BlockOutline::projections(const AttentionSpec& spec, const AttentionArch& arch) {
  const std::int64_t q_width = std::int64_t{spec.heads} * spec.head_dim;
  const std::int64_t kv_width = std::int64_t{spec.kv_heads} * spec.head_dim;
  const bool interleaved = arch.packing == "groups" && spec.kv_heads > 1;
  if (!arch.qkv.empty() && !(interleaved && quantized_)) {
    linear(LinearRole::kQueryKeyValue, arch.at, arch.qkv,
           {spec.hidden, q_width + 2 * kv_width, &arch.bias, arch.transposed});
    return;
  }
  linear(LinearRole::kQuery, arch.at, arch.q, {spec.hidden, q_width, &arch.bias});
  linear(LinearRole::kKey, arch.at, arch.k, {spec.hidden, kv_width, &arch.bias});
  if (spec.value_is_key) return;
  linear(LinearRole::kValue, arch.at, arch.v, {spec.hidden, kv_width, &arch.bias});
}

void BlockOutline::qk_norms(const AttentionSpec& spec, const AttentionArch& arch) {
  const std::int64_t width = spec.head_dim;
  const auto width_of = [&](const QkNormSpec& norm, int heads) {
    return norm.across_heads ? heads * width : width;
  };
  if (spec.q_norm && spec.q_norm->norm.weighted) {
    head_norm(spec.q_norm->norm, arch.q_norm->norm, width_of(*spec.q_norm, spec.heads));
    to_->norms.back().score_size = spec.scale * std::sqrt(static_cast<float>(width));
  }
  if (spec.k_norm) {
    head_norm(spec.k_norm->norm, arch.k_norm->norm, width_of(*spec.k_norm, spec.kv_heads));
  }
}

void BlockOutline::attention(const AttentionSpec& spec, const AttentionArch& arch) {
  const std::int64_t q_width = std::int64_t{spec.heads} * spec.head_dim;
  projections(spec, arch);
  if (spec.gate != AttentionGate::kNone) {
    const std::int64_t width =
        spec.gate == AttentionGate::kSigmoidElement ? q_width : std::int64_t{spec.heads};
    linear(LinearRole::kAttentionGate, arch.at, arch.gate, {spec.hidden, width});
  }
  linear(LinearRole::kAttentionOut, arch.at, arch.o,
         {q_width, spec.hidden, &arch.o_bias, arch.transposed});
  qk_norms(spec, arch);
  if (spec.v_norm) head_norm(*spec.v_norm, *arch.v_norm, spec.head_dim);
  if (spec.sinks) vector(VectorRole::kSinks, arch.at, arch.sinks, spec.heads);
}

void BlockOutline::feed_forward(const FeedForwardSpec& spec, const FeedForwardArch& arch) {
  const auto add = [&](LinearRole role, const Names& names, std::int64_t in, std::int64_t out) {
    linear(role, arch.at, names, {in, out, &arch.bias, arch.transposed});
  };
  if (spec.gated && arch.fused) {
    add(LinearRole::kGateUp, arch.gate_up, spec.hidden, 2 * spec.intermediate);
  } else {
    if (spec.gated) add(LinearRole::kGate, arch.gate, spec.hidden, spec.intermediate);
    add(LinearRole::kUp, arch.up, spec.hidden, spec.intermediate);
  }
  add(LinearRole::kDown, arch.down, spec.intermediate, spec.hidden);
}

RouterInput BlockOutline::router_input(const MoeSpec& spec, const MoeArch& arch) const {
  if (!arch.router_scale.empty()) return RouterInput::kWeighted;
  const BlockSpec& block = model_.blocks[static_cast<std::size_t>(layer_)];
  for (const std::optional<NormSpec>& norm :
       {spec.router_norm, block.moe_norm, block.feed_forward_norm,
        block.parallel ? block.attention_norm : std::optional<NormSpec>()}) {
    if (norm) return norm->weighted ? RouterInput::kWeighted : RouterInput::kNormalised;
  }
  return RouterInput::kStream;
}

void BlockOutline::router(const MoeSpec& spec, const MoeArch& arch) {
  OutlinedLinear& router = linear(LinearRole::kRouter, arch.at, arch.router,
                                  {spec.hidden, spec.experts, &arch.router_bias});
  router.per_token = spec.per_token;
  router.router_input = router_input(spec, arch);
  if (spec.router_norm && !arch.router_scale.empty()) {
    OutlinedNorm& scale = to_->norms.emplace_back();
    scale.weight = join_name(in_block(arch.at), arch.router_scale.at(0));
    scale.width = spec.hidden;
    scale.input = NormInput::kStream;
  } else if (spec.router_norm && spec.router_norm->weighted) {
    to_->norms.push_back(outlined({*model_.arch, at_, in_block(arch.at)}, *spec.router_norm,
                                  *arch.router_norm, spec.hidden));
    to_->norms.back().input = NormInput::kStream;
  }
  if (!arch.selection_bias.empty()) {
    vector(VectorRole::kSelectionBias, arch.at, arch.selection_bias, spec.experts);
  }
  if (spec.expert_scale) {
    vector(VectorRole::kExpertScale, arch.at, arch.expert_scale, spec.experts);
  }
}

void BlockOutline::moe(const MoeSpec& spec, const MoeArch& arch) {
  router(spec, arch);
  const FeedForwardSpec& shape = spec.expert;
  const auto add = [&](LinearRole role, const Names& names, std::int64_t expert) {
    const bool down = role == LinearRole::kDown;
    linear(role, arch.at, {with_number(names.at(0), "{e}", expert)},
           {down ? shape.intermediate : shape.hidden, down ? shape.hidden : shape.intermediate,
            &arch.bias});
  };
  for (std::int64_t e = 0; e < spec.experts; ++e) {
    if (shape.gated) add(LinearRole::kGate, arch.gate, e);
    add(LinearRole::kUp, arch.up, e);
    add(LinearRole::kDown, arch.down, e);
  }
  if (!spec.shared) return;
  feed_forward(*spec.shared, *arch.shared);
  if (!spec.shared_gate) return;
  linear(LinearRole::kSharedGate, arch.at, arch.shared_gate, {spec.hidden, 1});
}

void BlockOutline::list(TensorOutline& to) {
  to_ = &to;
  const BlockSpec& spec = model_.blocks[static_cast<std::size_t>(layer_)];
  const BlockArch& arch = arch_;
  norm(spec.attention_norm, arch.attention_norm, NormInput::kStream);
  if (spec.attention) attention(*spec.attention, *arch.attention);
  norm(spec.attention_post_norm, arch.attention_post_norm, NormInput::kOther);
  norm(spec.feed_forward_norm, arch.feed_forward_norm, NormInput::kStream);
  if (spec.feed_forward) feed_forward(*spec.feed_forward, *arch.feed_forward);
  norm(spec.dense_post_norm, arch.dense_post_norm, NormInput::kOther);
  norm(spec.moe_norm, arch.moe_norm, NormInput::kStream);
  if (spec.moe) moe(*spec.moe, *arch.moe);
  norm(spec.moe_post_norm, arch.moe_post_norm, NormInput::kOther);
  norm(spec.feed_forward_post_norm, arch.feed_forward_post_norm, NormInput::kOther);
  if (spec.output_scale) vector(VectorRole::kOutputScale, "", arch.output_scale, 1);
}

// Lists what stands outside the blocks.
class EndsOutline {
 public:
  EndsOutline(const ModelSpec& model, const HfConfig& config, TensorOutline& to)
      : model_(model), arch_(*model.arch), config_(config), at_(config, arch_.sizes), to_(to) {}

  void embedding() {
    to_.tables.push_back({weight_name("", arch_.embed), model_.vocab, model_.hidden});
    if (!arch_.positions.empty()) {
      to_.tables.push_back(
          {weight_name("", arch_.positions), model_.max_positions, model_.hidden, true});
    }
    norm(model_.embed_norm, arch_.embed_norm);
  }
  void final_norm() { norm(model_.final_norm, arch_.final_norm); }
  void head() {
    if (model_.tied) return;
    linear(LinearRole::kHead, arch_.head, model_.hidden, model_.vocab);
    to_.linears.back().bias = at_.flag("bias of the head", arch_.head_bias, false);
  }
  // What side layers have in place of an embedding.
  void combine(const DraftArch& draft) {
    std::int64_t states = 0;
    for (const std::string& key : draft.read_layers) {
      const auto found = config_.find(key);
      if (found && states == 0) states = std::ssize(*found->value);
    }
    linear(LinearRole::kCombine, draft.combine, states * model_.hidden, model_.hidden);
    norm(build_norm(arch_, draft.norm, at_), draft.norm);
    for (std::int64_t i = 0; draft.state_norms && i < states; ++i) {
      NormArch one = *draft.state_norms;
      one.name = {with_number(one.name.at(0), "{i}", i)};
      norm(build_norm(arch_, one, at_), one);
    }
  }

 private:
  void norm(const std::optional<NormSpec>& spec, const std::optional<NormArch>& arch) {
    if (!spec || !spec->weighted) return;
    to_.norms.push_back(outlined({arch_, at_, ""}, *spec, *arch, model_.hidden));
    to_.norms.back().input = NormInput::kStream;
  }
  void linear(LinearRole role, const Names& names, std::int64_t in, std::int64_t out) {
    OutlinedLinear& linear = to_.linears.emplace_back();
    linear.role = role;
    linear.key = names.at(0);
    linear.in = in;
    linear.out = out;
  }

  const ModelSpec& model_;
  const ArchSpec& arch_;
  const HfConfig& config_;
  ArchEvaluator at_;
  TensorOutline& to_;
};

}  // namespace

TensorOutline outline_tensors(const ModelSpec& spec, HfConfig config, bool quantized) {
  const ArchSpec& arch = *spec.arch;
  prepare_config(arch, config);
  TensorOutline outline;
  EndsOutline ends(spec, config, outline);
  if (arch.draft) {
    ends.combine(*arch.draft);
  } else {
    ends.embedding();
  }
  const ArchEvaluator at(config, arch.sizes);
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    BlockOutline(spec, at, layer, quantized).list(outline);
  }
  ends.final_norm();
  if (!arch.draft) ends.head();
  return outline;
}

}  // namespace bl
