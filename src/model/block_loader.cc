#include "model/block_loader.h"

#include <cmath>

#include "base/error.h"
#include "model/expert_loader.h"
#include "model/numbered_name.h"

namespace bl {
namespace {

double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

// Rows of a module that holds, for each kv head in turn, its queries, its key and its value.
std::vector<std::int64_t> grouped_rows(const AttentionSpec& spec, std::int64_t first,
                                       std::int64_t count) {
  const std::int64_t in_group = spec.heads / spec.kv_heads + 2;
  std::vector<std::int64_t> rows;
  for (std::int64_t group = 0; group < spec.kv_heads; ++group) {
    const std::int64_t base = (group * in_group + first) * spec.head_dim;
    for (std::int64_t row = 0; row < count * spec.head_dim; ++row) rows.push_back(base + row);
  }
  return rows;
}

bool is_grouped(const AttentionSpec& spec, const AttentionArch& arch) {
  return arch.packing == "groups" && spec.kv_heads > 1;
}

}  // namespace

Norm BlockLoader::norm(const std::optional<NormSpec>& spec, const std::optional<NormArch>& arch) {
  if (!spec) return {};
  return reader_.norm(*spec, prefix_, arch->name, {Shape{model_.hidden}});
}

// Weights of a norm of each head come as [head_dim], one for all heads, or one a head; across heads
// as one long vector.
Norm BlockLoader::head_norm(const QkNormSpec& spec, const NormArch& arch, const std::string& at,
                            Shape heads) {
  const std::int64_t all = heads.elements();
  if (spec.across_heads) return reader_.norm(spec.norm, at, arch.name, {Shape{all}, heads});
  return reader_.norm(spec.norm, at, arch.name, {Shape{heads[1]}, heads});
}

void BlockLoader::projection_sites(const AttentionSpec& spec, const AttentionArch& arch,
                                   const std::string& at, const Attention::Weights& weights) {
  if (reader_.phase() == WeightReader::Phase::kLoad) return;
  const std::int64_t q_width = std::int64_t{spec.heads} * spec.head_dim;
  const std::int64_t kv_width = std::int64_t{spec.kv_heads} * spec.head_dim;
  const bool fused = weights.qkv.id() >= 0;
  AdapterSite whole{.in = spec.hidden, .out = q_width + 2 * kv_width};
  std::int64_t first_row = 0;
  const auto part = [&](const Names& names, const Linear& linear, std::int64_t width,
                        std::int64_t first_head) {
    const std::int32_t id = fused ? weights.qkv.id() : linear.id();
    if (id < 0) return;
    const std::int64_t column = fused ? first_row : 0;
    for (const std::string& name : names) {
      reader_.add_site(join_name(at, name),
                       {.in = spec.hidden,
                        .out = width,
                        .parts = {{.linear = id, .first_column = column, .count = width}}});
    }
    AdapterPart& of_whole = whole.parts.emplace_back(
        AdapterPart{.linear = id, .first_column = column, .first_row = first_row, .count = width});
    if (is_grouped(spec, arch)) {
      of_whole.rows = grouped_rows(spec, first_head, width / spec.head_dim / spec.kv_heads);
    }
    first_row += width;
  };
  const std::int64_t per_kv = spec.heads / spec.kv_heads;
  part(arch.q, weights.q, q_width, 0);
  part(arch.k, weights.k, kv_width, per_kv);
  part(arch.v, weights.v, kv_width, per_kv + 1);
  if (whole.parts.size() < 3) return;
  for (const std::string& name : arch.qkv) reader_.add_site(join_name(at, name), whole);
}

void BlockLoader::grouped_projections(const AttentionSpec& spec, const AttentionArch& arch,
                                      const std::string& key, Attention::Weights& weights) {
  const std::int64_t per_kv = spec.heads / spec.kv_heads;
  const std::int64_t out = std::int64_t{spec.heads + 2 * spec.kv_heads} * spec.head_dim;
  LoadHints hints;
  hints.in = spec.hidden;
  hints.out = out;
  hints.transposed = arch.transposed;
  DenseMatrix whole;
  if (reader_.phase() == WeightReader::Phase::kCheck) {
    WeightMatrix found = load_weight_matrix(reader_.source(), key, hints);
    if (!std::holds_alternative<DenseMatrix>(found)) {
      fail(ErrorCode::kUnsupported,
           "linear {} ({}): queries, keys and values are interleaved, which is supported for plain "
           "weights only",
           key, format_name(found));
    }
    whole = std::get<DenseMatrix>(std::move(found));
  }
  const auto part = [&](std::int64_t first, std::int64_t count) {
    return reader_.linear(whole, grouped_rows(spec, first, count));
  };
  weights.q = part(0, per_kv);
  weights.k = part(per_kv, 1);
  weights.v = part(per_kv + 1, 1);
}

void BlockLoader::projections(const AttentionSpec& spec, const AttentionArch& arch,
                              const std::string& at, Attention::Weights& weights) {
  const std::int64_t q_width = std::int64_t{spec.heads} * spec.head_dim;
  const std::int64_t kv_width = std::int64_t{spec.kv_heads} * spec.head_dim;
  const std::string* fused = arch.qkv.empty() ? nullptr : reader_.pick(at, arch.qkv);
  if (fused != nullptr && reader_.pick(at, arch.q) == nullptr) {
    const std::string key = join_name(at, *fused);
    if (is_grouped(spec, arch)) {
      grouped_projections(spec, arch, key, weights);
    } else {
      weights.qkv = reader_.linear(
          key, {.in = spec.hidden, .out = q_width + 2 * kv_width, .transposed = arch.transposed});
    }
    return;
  }
  const auto load = [&](const Names& names, std::int64_t out) {
    return reader_.linear(reader_.key_of(at, names), {.in = spec.hidden, .out = out});
  };
  weights.q = load(arch.q, q_width);
  weights.k = load(arch.k, kv_width);
  if (!spec.value_is_key) weights.v = load(arch.v, kv_width);
}

Attention BlockLoader::attention(const AttentionSpec& spec, const AttentionArch& arch) {
  const std::string at = at_block(arch.at);
  const std::int64_t q_width = std::int64_t{spec.heads} * spec.head_dim;
  Attention::Weights weights;
  projections(spec, arch, at, weights);
  projection_sites(spec, arch, at, weights);
  if (spec.gate != AttentionGate::kNone) {
    const bool wide = spec.gate == AttentionGate::kSigmoidElement;
    weights.gate = reader_.linear(reader_.key_of(at, arch.gate),
                                  {.in = spec.hidden, .out = wide ? q_width : spec.heads});
  }
  // An EXL2 file holds this matrix the ordinary way round; a plain one as the architecture says.
  weights.o = reader_.linear(reader_.key_of(at, arch.o),
                             {.in = q_width, .out = spec.hidden, .transposed = arch.transposed});
  const Shape q_heads{spec.heads, spec.head_dim};
  const Shape kv_heads{spec.kv_heads, spec.head_dim};
  if (spec.q_norm) weights.q_norm = head_norm(*spec.q_norm, arch.q_norm->norm, at, q_heads);
  if (spec.k_norm) weights.k_norm = head_norm(*spec.k_norm, arch.k_norm->norm, at, kv_heads);
  if (spec.v_norm) {
    weights.v_norm = head_norm({*spec.v_norm, false, false}, *arch.v_norm, at, kv_heads);
  }
  if (spec.sinks) weights.sinks = reader_.vector(at, arch.sinks, {Shape{spec.heads}});
  if (spec.alibi_max > 0.0f) {
    weights.alibi_slopes =
        reader_.computed(alibi_slopes(spec.heads, spec.alibi_max), Shape{spec.heads});
  }
  Attention::Rotation rotation;
  if (spec.rope >= 0) {
    const RopeSpec& rope = model_.ropes[static_cast<std::size_t>(spec.rope)];
    rotation = {rope.rotated, rope.style};
  }
  return {spec, rotation, std::move(weights)};
}

FeedForward BlockLoader::feed_forward(const FeedForwardSpec& spec, const FeedForwardArch& arch) {
  return load_feed_forward(reader_, at_block(arch.at), spec, arch);
}

void BlockLoader::router(const MoeSpec& spec, const MoeArch& arch, const std::string& at,
                         Moe::Weights& weights) {
  weights.router =
      reader_.linear(reader_.key_of(at, arch.router), {.in = spec.hidden, .out = spec.experts});
  if (spec.router_norm && !arch.router_scale.empty()) {
    weights.router_norm = Norm(
        *spec.router_norm, reader_.vector(at, arch.router_scale, {Shape{spec.hidden}}), Tensor());
  } else if (spec.router_norm) {
    weights.router_norm =
        reader_.norm(*spec.router_norm, at, arch.router_norm->name, {Shape{spec.hidden}});
  }
  for (const std::string& name : arch.selection_bias) {
    if (!reader_.has_tensor(join_name(at, name))) continue;
    weights.selection_bias = reader_.vector(at, {name}, {Shape{spec.experts}, {1, spec.experts}});
    break;
  }
  if (spec.expert_scale) {
    weights.expert_scale = reader_.vector(at, arch.expert_scale, {Shape{spec.experts}});
  }
}

Moe BlockLoader::moe(const MoeSpec& spec, const MoeArch& arch) {
  const std::string at = at_block(arch.at);
  Moe::Weights weights;
  router(spec, arch, at, weights);
  load_experts(reader_, at, {.spec = spec, .arch = arch}, weights);
  if (spec.shared) {
    weights.shared =
        load_feed_forward(reader_, at_block(arch.shared->at), *spec.shared, *arch.shared);
    if (spec.shared_gate) {
      weights.shared_gate =
          reader_.linear(reader_.key_of(at, arch.shared_gate), {.in = spec.hidden, .out = 1});
    }
  }
  if (!spec.shared) {
    weights.zeros = reader_.computed(
        std::vector<float>(static_cast<std::size_t>(spec.hidden), 0.0f), Shape{spec.hidden});
  }
  Moe moe(spec, std::move(weights));
  if (reader_.phase() == WeightReader::Phase::kLoad) {
    moe.pack(reader_.backend());
  } else {
    reader_.add_packed(reader_.backend().expert_table_bytes(spec.experts));
  }
  return moe;
}

Block BlockLoader::load(std::size_t layer) {
  const BlockSpec& spec = model_.blocks[layer];
  const BlockArch& arch = model_.block_arch(layer);
  prefix_ = with_number(model_.arch->layer, "{i}", static_cast<std::int64_t>(layer));
  Block::Weights weights;
  weights.attention_norm = norm(spec.attention_norm, arch.attention_norm);
  if (spec.attention) weights.attention = attention(*spec.attention, *arch.attention);
  weights.attention_post_norm = norm(spec.attention_post_norm, arch.attention_post_norm);
  weights.feed_forward_norm = norm(spec.feed_forward_norm, arch.feed_forward_norm);
  if (spec.feed_forward)
    weights.feed_forward = feed_forward(*spec.feed_forward, *arch.feed_forward);
  weights.dense_post_norm = norm(spec.dense_post_norm, arch.dense_post_norm);
  weights.moe_norm = norm(spec.moe_norm, arch.moe_norm);
  if (spec.moe) weights.moe = moe(*spec.moe, *arch.moe);
  weights.moe_post_norm = norm(spec.moe_post_norm, arch.moe_post_norm);
  weights.feed_forward_post_norm = norm(spec.feed_forward_post_norm, arch.feed_forward_post_norm);
  if (spec.output_scale) {
    const std::vector<float> scale =
        reader_.host_values(prefix_, arch.output_scale, {Shape{1}, Shape{}});
    if (!scale.empty()) weights.output_scale = scale[0];
  }
  return {spec, std::move(weights)};
}

namespace {

// The names that adapters may know gate and up by, apart or fused.
void feed_forward_sites(WeightReader& reader, const std::string& at, const FeedForwardSpec& spec,
                        const FeedForwardArch& arch, const FeedForward::Weights& weights) {
  if (!spec.gated) return;
  const bool fused = weights.gate_up.id() >= 0;
  const std::int64_t width = spec.intermediate;
  AdapterSite whole{.in = spec.hidden, .out = 2 * width};
  const auto part = [&](const Names& names, const Linear& linear, std::int64_t first_row) {
    AdapterPart one{.linear = fused ? weights.gate_up.id() : linear.id(),
                    .first_column = fused ? first_row : 0,
                    .count = width};
    const std::vector<std::int64_t>& order = reader.sites().origin(one.linear).rows;
    if (!order.empty()) one.rows.assign(order.begin(), order.begin() + width);
    for (const std::string& name : names) {
      reader.add_site(join_name(at, name), {.in = spec.hidden, .out = width, .parts = {one}});
    }
    one.first_row = first_row;
    for (std::int64_t& row : one.rows) row += first_row;
    whole.parts.push_back(one);
  };
  part(arch.gate, weights.gate, 0);
  part(arch.up, weights.up, width);
  for (const std::string& name : arch.gate_up) reader.add_site(join_name(at, name), whole);
}

}  // namespace

FeedForward load_feed_forward(WeightReader& reader, const std::string& at,
                              const FeedForwardSpec& spec, const FeedForwardArch& arch) {
  const WeightReader::LinearShape in{
      .in = spec.hidden, .out = spec.intermediate, .transposed = arch.transposed};
  FeedForward::Weights weights;
  const std::string* fused = arch.gate_up.empty() ? nullptr : reader.pick(at, arch.gate_up);
  if (spec.gated && fused != nullptr && reader.pick(at, arch.gate) == nullptr) {
    weights.gate_up = reader.linear(
        join_name(at, *fused),
        {.in = spec.hidden, .out = 2 * spec.intermediate, .transposed = arch.transposed});
  } else {
    if (spec.gated) weights.gate = reader.linear(reader.key_of(at, arch.gate), in);
    weights.up = reader.linear(reader.key_of(at, arch.up), in);
  }
  weights.down =
      reader.linear(reader.key_of(at, arch.down),
                    {.in = spec.intermediate, .out = spec.hidden, .transposed = arch.transposed});
  reader.order_hidden(weights.down, {&weights.gate, &weights.up, &weights.gate_up});
  feed_forward_sites(reader, at, spec, arch, weights);
  if (spec.has_xielu) {
    const auto scalar = [&](const char* name, double fallback) {
      const std::string tensor = join_name(at, std::string("act_fn.") + name);
      if (!reader.has_tensor(tensor)) return fallback;
      const std::vector<float> value = reader.host_values("", {tensor}, {Shape{1}, Shape{}});
      return value.empty() ? fallback : static_cast<double>(value[0]);
    };
    const double beta = scalar("beta", 0.5);
    weights.xielu_alpha_p = static_cast<float>(softplus(scalar("alpha_p", 0.0)));
    weights.xielu_alpha_n = static_cast<float>(softplus(scalar("alpha_n", 0.0)) + beta);
    weights.xielu_beta = static_cast<float>(beta);
    weights.xielu_eps = static_cast<float>(scalar("eps", -1e-6));
  }
  return {spec, std::move(weights)};
}

}  // namespace bl
