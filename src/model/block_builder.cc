#include "model/block_builder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "model/hf_config.h"
#include "model/moe_rule.h"
#include "model/rope_config.h"

namespace bl {
namespace {

constexpr std::int64_t kMaxHeads = 1 << 14;
constexpr std::int64_t kMaxHeadDim = 1 << 13;
constexpr std::int64_t kMaxIntermediate = std::int64_t{1} << 24;
constexpr std::int64_t kMaxExperts = 1 << 12;  // the most that the backends' routing can hold
constexpr std::int64_t kMaxWindow = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMaxQuerySteps = 1 << 12;

// Evaluates the condition of an exception, which never holds without terms.
bool excepted(const Condition& condition, const ArchEvaluator& at) {
  return !condition.terms.empty() && at.holds(condition);
}

Activation parse_activation(const std::string& name, const std::string& file) {
  struct Entry {
    const char* name;
    Activation kind;
  };
  // In transformers "gelu" is the exact function.
  static constexpr Entry kEntries[] = {{"silu", Activation::kSilu},
                                       {"swish", Activation::kSilu},
                                       {"gelu", Activation::kGelu},
                                       {"gelu_python", Activation::kGelu},
                                       {"gelu_10", Activation::kGelu10},
                                       {"gelu_new", Activation::kGeluTanh},
                                       {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                       {"gelu_python_tanh", Activation::kGeluTanh},
                                       {"gelu_fast", Activation::kGeluTanh},
                                       {"gelu_accurate", Activation::kGeluTanh},
                                       {"quick_gelu", Activation::kQuickGelu},
                                       {"relu", Activation::kRelu},
                                       {"leaky_relu", Activation::kLeakyRelu},
                                       {"relu2", Activation::kRelu2},
                                       {"relu_squared", Activation::kRelu2},
                                       {"mish", Activation::kMish},
                                       {"sigmoid", Activation::kSigmoid},
                                       {"tanh", Activation::kTanh},
                                       {"linear", Activation::kNone},
                                       {"xielu", Activation::kXielu},
                                       {"swiglu_oai", Activation::kSwigluOai}};
  std::string list;
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return entry.kind;
    list += (list.empty() ? "" : ", ") + std::string(entry.name);
  }
  fail(ErrorCode::kUnsupported, "{}: activation {} is unknown, must be one of {}", file,
       json_text(Json(name.substr(0, 60))), list);
}

// Whether this layer rotates its heads: in some models some layers have no position encoding.
bool rotates(const RopeArch& arch, const ArchEvaluator& at) {
  if (!arch.layers.empty() && at.config().find(arch.layers)) {
    return at.holds({{arch.layers}});
  }
  const auto every = at.find_whole("step of layers without positions", arch.skip_every,
                                   {0, std::int64_t{1} << 16});
  return !every || *every == 0 || at.layer_number() % *every != 0;
}

RouteKind parse_route(const std::string& name, const std::string& where) {
  if (name == "softmax") return RouteKind::kSoftmax;
  if (name == "softmax_topk") return RouteKind::kSoftmaxTopK;
  if (name == "sigmoid") return RouteKind::kSigmoid;
  if (name == "sqrt_softplus") return RouteKind::kSqrtSoftplus;
  fail(ErrorCode::kUnsupported,
       "{}: routing \"{}\" is unknown, must be softmax, softmax_topk, sigmoid or sqrt_softplus",
       where, name.substr(0, 60));
}

}  // namespace

std::optional<NormSpec> build_norm(const ArchSpec& model, const std::optional<NormArch>& arch,
                                   const ArchEvaluator& at) {
  if (!arch || !at.holds(arch->condition)) return std::nullopt;
  const NormArch& base = model.norms;
  NormSpec spec;
  spec.kind =
      arch->kind.value_or(base.kind.value_or("rms")) == "layer" ? NormKind::kLayer : NormKind::kRms;
  const double eps = at.real("epsilon of norms", arch->eps.given() ? arch->eps : base.eps, 1e-6);
  if (!(eps >= 0.0 && eps < 1.0)) {
    fail(ErrorCode::kInvalidFile, "{}: the epsilon of norms is {}, must be from 0 to 1",
         at.config().file(), eps);
  }
  spec.eps = static_cast<float>(eps);
  spec.unit_offset = arch->unit_offset.value_or(base.unit_offset.value_or(false));
  spec.weighted = arch->weighted.value_or(base.weighted.value_or(true));
  return spec;
}

std::optional<NormSpec> BlockBuilder::norm(const std::optional<NormArch>& arch,
                                           const ArchEvaluator& at) const {
  return build_norm(arch_, arch, at);
}

std::optional<QkNormSpec> BlockBuilder::qk_norm(const std::optional<QkNormArch>& arch,
                                                const ArchEvaluator& at) const {
  if (!arch) return std::nullopt;
  const std::optional<NormSpec> spec = norm(arch->norm, at);
  if (!spec) return std::nullopt;
  return QkNormSpec{*spec, arch->across_heads, arch->after_rope};
}

int BlockBuilder::rope_index(const RopeSpec& spec) {
  const auto it = std::find(model_.ropes.begin(), model_.ropes.end(), spec);
  if (it != model_.ropes.end()) return static_cast<int>(it - model_.ropes.begin());
  model_.ropes.push_back(spec);
  return static_cast<int>(model_.ropes.size()) - 1;
}

void BlockBuilder::attention_rope(const RopeArch& arch, const ArchEvaluator& at,
                                  const std::string& type, AttentionSpec& spec) {
  if (!at.holds(arch.condition) || !rotates(arch, at)) return;
  RopeSpec rope = read_rope({.arch = arch,
                             .config = at,
                             .layer_type = type,
                             .head_dim = spec.head_dim,
                             .max_positions = model_.max_positions,
                             .options = options_});
  if (rope.rotated == 0) return;
  spec.rope = spec.query_rope = rope_index(rope);
  const double beta = at.real("scaling of queries", arch.query_beta, 0.0);
  if (beta == 0.0) return;
  if (rope.rotated != spec.head_dim || choice_of(rope) != RopeChoice::kFixed) {
    fail(ErrorCode::kUnsupported,
         "{}: queries scaled by position need a rope_type with fixed frequencies that rotates the "
         "whole head",
         at.config().file());
  }
  rope.original_positions =
      at.whole("positions of a scaling step", arch.original, {1, std::int64_t{1} << 31});
  rope.query_beta = beta;
  rope.query_steps = std::min(
      std::max(model_.max_positions, model_.context) / rope.original_positions + 1, kMaxQuerySteps);
  spec.query_rope = rope_index(rope);
}

void BlockBuilder::attention_numbers(const AttentionArch& arch, const ArchEvaluator& at,
                                     AttentionSpec& spec) const {
  spec.scale = static_cast<float>(
      at.real("scale of attention scores", arch.scale, 1.0 / std::sqrt(spec.head_dim)));
  spec.softcap = static_cast<float>(at.real("soft cap of attention scores", arch.softcap, 0.0));
  spec.clip = static_cast<float>(at.real("clamp of q, k and v", arch.clip, 0.0));
  if (spec.softcap < 0.0f || spec.clip < 0.0f) {
    fail(ErrorCode::kInvalidFile,
         "{}: the soft cap ({}) and the clamp ({}) of attention must not be negative",
         at.config().file(), spec.softcap, spec.clip);
  }
  spec.window = static_cast<std::int32_t>(
      at.find_whole("sliding window", arch.window, {0, kMaxWindow}).value_or(0));
  spec.alibi_max = static_cast<float>(at.real("ALiBi", arch.alibi, 0.0));
  spec.causal = at.flag("causal attention", arch.causal, true);
}

AttentionSpec BlockBuilder::attention(const AttentionArch& arch, const ArchEvaluator& at,
                                      const std::string& type) {
  AttentionSpec spec;
  spec.hidden = model_.hidden;
  spec.heads = static_cast<int>(at.whole("number of attention heads", arch.heads, {1, kMaxHeads}));
  spec.kv_heads =
      static_cast<int>(at.find_whole("number of key-value heads", arch.kv_heads, {1, spec.heads})
                           .value_or(spec.heads));
  spec.head_dim = static_cast<int>(at.whole("size of a head", arch.head_dim, {1, kMaxHeadDim}));
  if (spec.heads % spec.kv_heads != 0) {
    fail(
        ErrorCode::kInvalidFile,
        "{}: {} attention heads cannot share {} key-value heads; the latter must divide the former",
        at.config().file(), spec.heads, spec.kv_heads);
  }
  attention_numbers(arch, at, spec);
  spec.q_norm = qk_norm(arch.q_norm, at);
  spec.k_norm = qk_norm(arch.k_norm, at);
  spec.v_norm = norm(arch.v_norm, at);
  if (!arch.gate_kind.empty() && at.holds(arch.gate_condition)) {
    spec.gate = arch.gate_kind == "sigmoid_head"    ? AttentionGate::kSigmoidHead
                : arch.gate_kind == "softplus_head" ? AttentionGate::kSoftplusHead
                                                    : AttentionGate::kSigmoidElement;
  }
  spec.sinks = !arch.sinks.empty();
  spec.value_is_key = excepted(arch.value_is_key, at);
  if (arch.rope) attention_rope(*arch.rope, at, type, spec);
  return spec;
}

FeedForwardSpec BlockBuilder::feed_forward(const FeedForwardArch& arch,
                                           const ArchEvaluator& at) const {
  FeedForwardSpec spec;
  spec.hidden = model_.hidden;
  spec.intermediate = at.whole("size of the feed-forward layer", arch.size, {1, kMaxIntermediate});
  spec.gated = arch.gated;
  const std::string name = at.find_text("activation", arch.activation).value_or("silu");
  spec.activation = parse_activation(name, at.config().file());
  spec.has_xielu = spec.activation == Activation::kXielu;
  spec.limit = static_cast<float>(at.real("clamp of the feed-forward layer", arch.limit, 0.0));
  spec.limit_after = arch.limit_after;
  return spec;
}

MoeSpec BlockBuilder::moe(const MoeArch& arch, const ArchEvaluator& at) const {
  MoeSpec spec;
  spec.hidden = model_.hidden;
  spec.experts = static_cast<int>(at.whole("number of experts", arch.experts, {1, kMaxExperts}));
  spec.per_token =
      static_cast<int>(at.whole("experts of a token", arch.per_token, {1, spec.experts}));
  spec.route =
      parse_route(at.find_text("routing", arch.route).value_or("softmax_topk"), at.config().file());
  spec.normalize = at.flag("normalisation of expert weights", arch.normalize, true);
  // A softmax over all experts, normalised over the selected ones, is a softmax over the selected.
  if (spec.route == RouteKind::kSoftmax && spec.normalize && !arch.normalize_power.given()) {
    spec.route = RouteKind::kSoftmaxTopK;
  }
  spec.normalize_power = static_cast<float>(
      at.real("norm that expert weights are divided by", arch.normalize_power, 0.0));
  spec.multiplier = static_cast<float>(at.real("scale of routed experts", arch.scale, 1.0));
  spec.group_count =
      static_cast<int>(at.find_whole("expert groups", arch.groups, {1, spec.experts}).value_or(1));
  spec.group_top = static_cast<int>(
      at.find_whole("expert groups of a token", arch.group_top, {1, spec.group_count})
          .value_or(spec.group_count));
  if (spec.experts % spec.group_count != 0 ||
      spec.per_token > spec.experts / spec.group_count * spec.group_top) {
    fail(ErrorCode::kInvalidFile,
         "{}: {} experts in {} groups of which {} stay cannot give {} experts a token",
         at.config().file(), spec.experts, spec.group_count, spec.group_top, spec.per_token);
  }
  FeedForwardArch expert;
  expert.size = arch.size;
  expert.activation = arch.activation;
  expert.limit = arch.limit;
  expert.limit_after = arch.limit_after;
  expert.gated = arch.gated;
  spec.expert = feed_forward(expert, at);
  if (arch.shared && at.find(arch.shared->size)) {
    const auto size =
        at.find_whole("size of the shared expert", arch.shared->size, {0, kMaxIntermediate});
    if (*size > 0) spec.shared = feed_forward(*arch.shared, at);
  }
  spec.shared_gate = spec.shared && !arch.shared_gate.empty();
  spec.router_norm = norm(arch.router_norm, at);
  if (spec.router_norm && !arch.router_scale.empty()) spec.router_norm->unit_offset = false;
  spec.router_multiplier =
      static_cast<float>(at.real("multiplier of the router", arch.router_multiplier, 1.0));
  spec.expert_scale = !arch.expert_scale.empty();
  return spec;
}

void BlockBuilder::feed_forwards(const BlockArch& block, std::int64_t layer,
                                 const ArchEvaluator& at, BlockSpec& spec) const {
  const bool routed =
      block.moe && at.holds(block.moe->condition) && layer_routes(block.moe->when, at, layer);
  if (routed) spec.moe = moe(*block.moe, at);
  const bool dense = block.feed_forward && !excepted(block.feed_forward->absent, at);
  if (dense && (!routed || block.moe->beside_dense)) {
    spec.feed_forward = feed_forward(*block.feed_forward, at);
  }
  if (spec.moe || spec.feed_forward) {
    spec.feed_forward_norm = norm(block.feed_forward_norm, at);
    spec.feed_forward_post_norm = norm(block.feed_forward_post_norm, at);
  }
  if (spec.moe && spec.feed_forward) {
    spec.dense_post_norm = norm(block.dense_post_norm, at);
    spec.moe_norm = norm(block.moe_norm, at);
    spec.moe_post_norm = norm(block.moe_post_norm, at);
  }
  if (spec.parallel && spec.moe && (spec.feed_forward || spec.moe->router_norm)) {
    fail(ErrorCode::kUnsupported,
         "archs/{}.json: a parallel block cannot have a dense feed-forward beside its experts, nor "
         "a norm of the router's own",
         arch_.name);
  }
}

BlockSpec BlockBuilder::build(std::int64_t layer, const std::string& type, const BlockArch& block) {
  const ArchEvaluator at = config_.for_layer(layer, model_.layers);
  BlockSpec spec;
  if (block.attention && !excepted(block.attention->absent, at)) {
    spec.attention = attention(*block.attention, at, type);
    spec.attention_norm = norm(block.attention_norm, at);
    spec.attention_post_norm = norm(block.attention_post_norm, at);
  }
  spec.parallel = at.flag("parallel attention and feed-forward", block.parallel, false);
  feed_forwards(block, layer, at, spec);
  spec.residual_multiplier =
      static_cast<float>(at.real("multiplier of the residual", block.residual_multiplier, 1.0));
  spec.output_scale = !block.output_scale.empty();
  return spec;
}

// Only where transformers' class decides: files of other origin may hold what no key says.
DeniedBiases BlockBuilder::denied_biases(std::int64_t layer, const BlockArch& block) const {
  if (!config_.config().has_class_options()) return {};
  const ArchEvaluator at = config_.for_layer(layer, model_.layers);
  const auto denied_by = [&](const ArchValue& bias) {
    const auto found = at.find(bias);
    if (!found) return at.null_key(bias);
    return found->value == false ? found->origin : std::string();
  };
  DeniedBiases denied;
  if (block.attention) {
    denied.projections = denied_by(block.attention->bias);
    denied.output = denied_by(block.attention->o_bias);
  }
  if (block.feed_forward) denied.feed_forward = denied_by(block.feed_forward->bias);
  return denied;
}

}  // namespace bl
