#include "model/block_planner.h"

#include <algorithm>

#include "base/error.h"
#include "model/expert_planner.h"
#include "model/feed_forward_planner.h"
#include "model/numbered_name.h"

namespace bl {
namespace {

// Heads of each group.
struct HeadRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Returns rows of a module that holds, in each of `groups` groups, some query heads, their keys and
// their values.
std::vector<std::int64_t> grouped_rows(const AttentionSpec& spec, std::int64_t groups,
                                       const HeadRange& heads) {
  const std::int64_t in_group = (spec.heads + 2 * spec.kv_heads) / groups;
  std::vector<std::int64_t> rows;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t base = (group * in_group + heads.first) * spec.head_dim;
    for (std::int64_t row = 0; row < heads.count * spec.head_dim; ++row) rows.push_back(base + row);
  }
  return rows;
}

bool has_only_zeros(const HostArray& array) {
  const auto* bytes = array.view.as<const unsigned char>();
  const auto count = static_cast<std::size_t>(array.view.shape.elements());
  return std::all_of(bytes, bytes + count * size_of(array.view.dtype),
                     [](unsigned char byte) { return byte == 0; });
}

bool is_grouped(const AttentionSpec& spec, const AttentionArch& arch) {
  return arch.packing == "groups" && spec.kv_heads > 1;
}

}  // namespace

void BlockPlanner::norm(Role role, const std::optional<NormSpec>& spec,
                        const std::optional<NormArch>& arch) {
  if (spec) planner_.norm(target(role), *spec, {prefix_, arch->name, {Shape{model_.hidden}}});
}

// Files store a per-head norm as [head_dim], shared by all heads, or as [heads, head_dim], and a
// norm across heads as one long vector.
void BlockPlanner::head_norm(Role role, const QkNormSpec& spec, const NormArch& arch, Shape heads) {
  const Shape flat{spec.across_heads ? heads.elements() : heads[1]};
  planner_.norm(target(role), spec.norm, {attention_at_, arch.name, {flat, heads}});
}

void BlockPlanner::projection_sites(const AttentionSpec& spec, const AttentionArch& arch,
                                    const std::string& at, const Projections& linears) {
  const std::int64_t q_width = std::int64_t{spec.heads} * spec.head_dim;
  const std::int64_t kv_width = std::int64_t{spec.kv_heads} * spec.head_dim;
  const bool fused = linears.qkv >= 0;
  AdapterSite whole{.in = spec.hidden, .out = q_width + 2 * kv_width};
  std::int64_t first_row = 0;
  const auto part = [&](const Names& names, std::int32_t linear, std::int64_t width,
                        std::int64_t first_head) {
    const std::int32_t id = fused ? linears.qkv : linear;
    if (id < 0) return;
    const std::int64_t column = fused ? first_row : 0;
    for (const std::string& name : names) {
      planner_.add_site(join_name(at, name),
                        {.in = spec.hidden,
                         .out = width,
                         .parts = {{.linear = id, .first_column = column, .count = width}}});
    }
    AdapterPart& of_whole = whole.parts.emplace_back(
        AdapterPart{.linear = id, .first_column = column, .first_row = first_row, .count = width});
    if (is_grouped(spec, arch)) {
      const std::int64_t count = width / spec.head_dim / spec.kv_heads;
      of_whole.rows = grouped_rows(spec, spec.kv_heads, {first_head, count});
    }
    first_row += width;
  };
  const std::int64_t per_kv = spec.heads / spec.kv_heads;
  part(arch.q, linears.q, q_width, 0);
  part(arch.k, linears.k, kv_width, per_kv);
  part(arch.v, linears.v, kv_width, per_kv + 1);
  if (whole.parts.size() < 3) return;
  for (const std::string& name : arch.qkv) planner_.add_site(join_name(at, name), whole);
}

BlockPlanner::Projections BlockPlanner::parts_of_fused(const AttentionSpec& spec,
                                                       const AttentionArch& arch,
                                                       const std::string& key) {
  const std::int64_t out = std::int64_t{spec.heads + 2 * spec.kv_heads} * spec.head_dim;
  const WeightMatrix whole =
      planner_.whole_matrix(key, {.in = spec.hidden, .out = out, .transposed = arch.transposed});
  // One group of [q…q k v] where the three stand one behind another.
  const std::int64_t groups = is_grouped(spec, arch) ? spec.kv_heads : 1;
  const std::int64_t kv_heads = spec.kv_heads / groups;
  const auto part = [&](Role role, const Names& names, std::int64_t first, std::int64_t count) {
    return planner_.linear(target(role), {.matrix = whole,
                                          .tensors = planner_.tensors_of(key),
                                          .rows = grouped_rows(spec, groups, {first, count}),
                                          .key = join_name(attention_at_, names.at(0))});
  };
  const std::int64_t heads = spec.heads / groups;
  Projections linears;
  linears.q = part(Role::kQ, arch.q, 0, heads);
  linears.k = part(Role::kK, arch.k, heads, kv_heads);
  linears.v = part(Role::kV, arch.v, heads + kv_heads, kv_heads);
  return linears;
}

BlockPlanner::Projections BlockPlanner::projections(const AttentionSpec& spec,
                                                    const AttentionArch& arch,
                                                    const std::string& at) {
  const std::int64_t q_width = std::int64_t{spec.heads} * spec.head_dim;
  const std::int64_t kv_width = std::int64_t{spec.kv_heads} * spec.head_dim;
  const std::string* fused = arch.qkv.empty() ? nullptr : planner_.pick(at, arch.qkv);
  Projections linears;
  if (fused != nullptr && planner_.pick(at, arch.q) == nullptr) {
    const std::string key = join_name(at, *fused);
    if (is_grouped(spec, arch) || planner_.separates(key)) return parts_of_fused(spec, arch, key);
    linears.qkv = planner_.linear(
        target(Role::kQkv), key,
        {.in = spec.hidden, .out = q_width + 2 * kv_width, .transposed = arch.transposed});
    return linears;
  }
  const auto plan = [&](Role role, const Names& names, std::int64_t out) {
    return planner_.linear(target(role), planner_.key_of(at, names),
                           {.in = spec.hidden, .out = out});
  };
  linears.q = plan(Role::kQ, arch.q, q_width);
  linears.k = plan(Role::kK, arch.k, kv_width);
  if (!spec.value_is_key) linears.v = plan(Role::kV, arch.v, kv_width);
  return linears;
}

void BlockPlanner::refuse_biases(const std::string& at, std::initializer_list<const Names*> linears,
                                 const std::string& key) const {
  if (key.empty()) return;
  for (const Names* names : linears) {
    for (const std::string& name : *names) {
      const std::string tensor = join_name(at, name) + ".bias";
      const TensorInfo* info = planner_.source().find(tensor);
      if (info == nullptr || has_only_zeros(planner_.source().read(tensor))) continue;
      fail(ErrorCode::kUnsupported,
           "{}: {} is not true, but the files have {}, which is not zero; if the model was trained "
           "with it, the key must be true",
           model_.config_file, key, tensor);
    }
  }
}

void BlockPlanner::attention(const AttentionSpec& spec, const AttentionArch& arch) {
  attention_at_ = at_block(arch.at);
  const std::string& at = attention_at_;
  const std::int64_t q_width = std::int64_t{spec.heads} * spec.head_dim;
  const DeniedBiases& denied = model_.denied_biases[static_cast<std::size_t>(layer_)];
  refuse_biases(at, {&arch.qkv, &arch.q, &arch.k, &arch.v}, denied.projections);
  refuse_biases(at, {&arch.o}, denied.output);
  projection_sites(spec, arch, at, projections(spec, arch, at));
  if (spec.gate != AttentionGate::kNone) {
    const bool wide = spec.gate == AttentionGate::kSigmoidElement;
    planner_.linear(target(Role::kAttentionGate), planner_.key_of(at, arch.gate),
                    {.in = spec.hidden, .out = wide ? q_width : spec.heads});
  }
  // EXL2 files never transpose this matrix; plain files do as the architecture says.
  planner_.linear(target(Role::kO), planner_.key_of(at, arch.o),
                  {.in = q_width, .out = spec.hidden, .transposed = arch.transposed});
  const Shape q_heads{spec.heads, spec.head_dim};
  const Shape kv_heads{spec.kv_heads, spec.head_dim};
  if (spec.q_norm) head_norm(Role::kQNorm, *spec.q_norm, arch.q_norm->norm, q_heads);
  if (spec.k_norm) head_norm(Role::kKNorm, *spec.k_norm, arch.k_norm->norm, kv_heads);
  if (spec.v_norm) {
    head_norm(Role::kVNorm, {*spec.v_norm, false, false}, *arch.v_norm, kv_heads);
  }
  if (spec.sinks) planner_.vector(target(Role::kSinks), {at, arch.sinks, {Shape{spec.heads}}});
  if (spec.alibi_max > 0.0f) {
    planner_.values(target(Role::kAlibiSlopes), alibi_slopes(spec.heads, spec.alibi_max));
  }
}

void BlockPlanner::router(const MoeSpec& spec, const MoeArch& arch, const std::string& at) {
  const Shape hidden{spec.hidden};
  const Shape experts{spec.experts};
  planner_.linear(target(Role::kRouter), planner_.key_of(at, arch.router),
                  {.in = spec.hidden, .out = spec.experts});
  if (spec.router_norm && !arch.router_scale.empty()) {
    planner_.norm_of_scale(target(Role::kRouterNorm), *spec.router_norm,
                           {at, arch.router_scale, {hidden}});
  } else if (spec.router_norm) {
    planner_.norm(target(Role::kRouterNorm), *spec.router_norm,
                  {at, arch.router_norm->name, {hidden}});
  }
  for (const std::string& name : arch.selection_bias) {
    if (!planner_.has_tensor(join_name(at, name))) continue;
    planner_.vector(target(Role::kSelectionBias), {at, {name}, {experts, {1, spec.experts}}});
    break;
  }
  if (spec.expert_scale) {
    planner_.vector(target(Role::kExpertScale), {at, arch.expert_scale, {experts}});
  }
}

void BlockPlanner::moe(const MoeSpec& spec, const MoeArch& arch) {
  const std::string at = at_block(arch.at);
  router(spec, arch, at);
  plan_experts(planner_, layer_, at, {.spec = spec, .arch = arch});
  if (spec.shared) {
    plan_feed_forward(planner_, target(Role::kGate, kSharedExpert), at_block(arch.shared->at),
                      *spec.shared, *arch.shared);
    if (spec.shared_gate) {
      planner_.linear(target(Role::kSharedExpertGate), planner_.key_of(at, arch.shared_gate),
                      {.in = spec.hidden, .out = 1});
    }
  } else {
    planner_.values(target(Role::kExpertZeros),
                    std::vector<float>(static_cast<std::size_t>(spec.hidden), 0.0f));
  }
  planner_.expert_table(target(Role::kExpertTable), spec.experts);
}

void BlockPlanner::plan(std::size_t layer) {
  const BlockSpec& spec = model_.blocks[layer];
  const BlockArch& arch = model_.block_arch(layer);
  layer_ = static_cast<std::int32_t>(layer);
  prefix_ = with_number(model_.arch->layer, "{i}", layer_);
  norm(Role::kAttentionNorm, spec.attention_norm, arch.attention_norm);
  if (spec.attention) attention(*spec.attention, *arch.attention);
  norm(Role::kAttentionPostNorm, spec.attention_post_norm, arch.attention_post_norm);
  norm(Role::kFeedForwardNorm, spec.feed_forward_norm, arch.feed_forward_norm);
  if (spec.feed_forward) {
    refuse_biases(at_block(arch.feed_forward->at),
                  {&arch.feed_forward->gate_up, &arch.feed_forward->gate, &arch.feed_forward->up,
                   &arch.feed_forward->down},
                  model_.denied_biases[layer].feed_forward);
    plan_feed_forward(planner_, target(Role::kGate), at_block(arch.feed_forward->at),
                      *spec.feed_forward, *arch.feed_forward);
  }
  norm(Role::kDensePostNorm, spec.dense_post_norm, arch.dense_post_norm);
  norm(Role::kMoeNorm, spec.moe_norm, arch.moe_norm);
  if (spec.moe) moe(*spec.moe, *arch.moe);
  norm(Role::kMoePostNorm, spec.moe_post_norm, arch.moe_post_norm);
  norm(Role::kFeedForwardPostNorm, spec.feed_forward_post_norm, arch.feed_forward_post_norm);
  if (spec.output_scale) {
    planner_.scalar(target(Role::kOutputScale), planner_.read_scalar(prefix_, arch.output_scale));
  }
}

}  // namespace bl
