#include "model/arch_spec.h"

#include "base/error.h"
#include "base/json.h"
#include "model/arch_section.h"

namespace bl {
namespace {

void check_word(const std::string& where, const std::string& word,
                std::initializer_list<const char*> words) {
  std::string list;
  for (const char* known : words) {
    if (word == known) return;
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", known);
  }
  fail(ErrorCode::kInvalidFile, "{}: \"{}\" is unknown, must be one of {}", where, word, list);
}

void read_norm_keys(ArchSection& section, NormArch& norm) {
  section.read("name", norm.name);
  section.read("kind", norm.kind);
  section.read("eps", norm.eps);
  section.read("unit_offset", norm.unit_offset);
  section.read("weighted", norm.weighted);
  section.read("bias", norm.bias);
  section.read("if", norm.condition);
  if (norm.kind) check_word(section.where("kind"), *norm.kind, {"rms", "layer"});
}

// Reads a norm: a tensor name, a list of such names, or an object.
std::optional<NormArch> read_norm(ArchSection& parent, const char* key) {
  const Json* json = parent.find(key);
  if (json == nullptr) return std::nullopt;
  NormArch norm;
  if (!json->is_object()) {
    parent.read(key, norm.name);
    return norm;
  }
  ArchSection section(*json, parent, key);
  read_norm_keys(section, norm);
  section.done();
  return norm;
}

std::optional<QkNormArch> read_qk_norm(ArchSection& parent, const char* key) {
  const Json* json = parent.find(key);
  if (json == nullptr) return std::nullopt;
  QkNormArch result;
  ArchSection section(*json, parent, key);
  read_norm_keys(section, result.norm);
  section.read("across_heads", result.across_heads);
  section.read("after_rope", result.after_rope);
  section.done();
  return result;
}

std::optional<RopeArch> read_rope(ArchSection& parent) {
  const Json* json = parent.find("rope");
  if (json == nullptr) return std::nullopt;
  RopeArch rope;
  ArchSection section(*json, parent, "rope");
  section.read("style", rope.style);
  section.read("theta", rope.theta);
  section.read("partial", rope.partial);
  section.read("rotary_dim", rope.rotary_dim);
  section.read("scaling", rope.scaling);
  section.read("nested", rope.nested);
  section.read("query_beta", rope.query_beta);
  section.read("original", rope.original);
  section.read_key("layers", rope.layers);
  section.read("skip_every", rope.skip_every);
  section.read("reversed", rope.reversed);
  section.read("if", rope.condition);
  section.done();
  check_word(section.where("style"), rope.style, {"neox", "interleaved"});
  return rope;
}

void read_attention_names(ArchSection& section, AttentionArch& a) {
  section.read("q", a.q);
  section.read("k", a.k);
  section.read("v", a.v);
  section.read("o", a.o);
  section.read("qkv", a.qkv);
  section.read("packing", a.packing);
  section.read("transposed", a.transposed);
  section.read("bias", a.bias);
  section.read("o_bias", a.o_bias);
  section.read("sinks", a.sinks);
  section.read("gate", a.gate);
  section.read("gate_kind", a.gate_kind);
  section.read("gate_if", a.gate_condition);
  check_word(section.where("packing"), a.packing, {"concat", "groups"});
  check_word(section.where("gate_kind"), a.gate_kind,
             {"", "sigmoid_head", "softplus_head", "sigmoid_element"});
}

std::optional<AttentionArch> read_attention(ArchSection& parent) {
  const Json* json = parent.find("attention");
  if (json == nullptr) return std::nullopt;
  AttentionArch a;
  ArchSection section(*json, parent, "attention");
  section.read("at", a.at);
  section.read("heads", a.heads);
  section.read("kv_heads", a.kv_heads);
  section.read("head_dim", a.head_dim);
  read_attention_names(section, a);
  a.q_norm = read_qk_norm(section, "q_norm");
  a.k_norm = read_qk_norm(section, "k_norm");
  a.v_norm = read_norm(section, "v_norm");
  section.read("scale", a.scale);
  section.read("softcap", a.softcap);
  section.read("clip", a.clip);
  section.read("window", a.window);
  section.read("alibi", a.alibi);
  section.read("causal", a.causal);
  section.read("value_is_key_if", a.value_is_key);
  a.rope = read_rope(section);
  section.read("absent_if", a.absent);
  section.done();
  return a;
}

std::optional<FeedForwardArch> read_feed_forward(ArchSection& parent, const char* key) {
  const Json* json = parent.find(key);
  if (json == nullptr) return std::nullopt;
  FeedForwardArch f;
  ArchSection section(*json, parent, key);
  section.read("at", f.at);
  section.read("gate", f.gate);
  section.read("up", f.up);
  section.read("down", f.down);
  section.read("gate_up", f.gate_up);
  section.read("xielu", f.xielu);
  section.read("gated", f.gated);
  section.read("fused", f.fused);
  section.read("transposed", f.transposed);
  section.read("size", f.size);
  section.read("activation", f.activation);
  section.read("limit", f.limit);
  section.read("limit_after", f.limit_after);
  section.read("bias", f.bias);
  section.read("absent_if", f.absent);
  section.done();
  return f;
}

void read_moe_rule(ArchSection& parent, MoeRule& rule) {
  const Json* json = parent.find("when");
  if (json == nullptr) return;
  ArchSection section(*json, parent, "when");
  section.read("first", rule.first);
  section.read("last", rule.last);
  section.read("step", rule.step);
  section.read("offset", rule.offset);
  section.read_key("except", rule.except);
  section.read_key("only", rule.only);
  section.read_key("kinds", rule.kinds);
  section.read("kind_is", rule.kind_is);
  section.done();
}

void read_router(ArchSection& section, MoeArch& m) {
  section.read("router", m.router);
  m.router_norm = read_norm(section, "router_norm");
  section.read("router_scale", m.router_scale);
  section.read("router_multiplier", m.router_multiplier);
  section.read("router_bias", m.router_bias);
  section.read("selection_bias", m.selection_bias);
  section.read("expert_scale", m.expert_scale);
  if (!m.router_scale.empty() && (!m.router_norm || m.router_norm->weighted.value_or(true))) {
    fail(ErrorCode::kInvalidFile, "{}: needs a router_norm with \"weighted\": false",
         section.where("router_scale"));
  }
}

// Requires stacks for both halves of an expert: if only one half were stacked, the other would have
// no tensor name.
void check_stacks(const ArchSection& section, const MoeArch& m) {
  const bool halves = !m.stacked_up.empty() && (!m.gated || !m.stacked_gate.empty());
  const bool first = !m.stacked_gate_up.empty() || halves;
  const bool any = first || !m.stacked_up.empty() || !m.stacked_gate.empty();
  if (m.stacked_down.empty() ? any : !first) {
    fail(ErrorCode::kInvalidFile,
         "{}: goes with stacked_gate_up, or with stacked_gate and stacked_up",
         section.where("stacked_down"));
  }
}

std::optional<MoeArch> read_moe(ArchSection& parent) {
  const Json* json = parent.find("moe");
  if (json == nullptr) return std::nullopt;
  MoeArch m;
  ArchSection section(*json, parent, "moe");
  read_moe_rule(section, m.when);
  section.read("at", m.at);
  read_router(section, m);
  section.read("route", m.route);
  section.read("experts", m.experts);
  section.read("per_token", m.per_token);
  section.read("size", m.size);
  section.read("normalize", m.normalize);
  section.read("normalize_power", m.normalize_power);
  section.read("scale", m.scale);
  section.read("groups", m.groups);
  section.read("group_top", m.group_top);
  section.read("activation", m.activation);
  section.read("limit", m.limit);
  section.read("limit_after", m.limit_after);
  section.read("gated", m.gated);
  section.read("bias", m.bias);
  section.read("gate", m.gate);
  section.read("up", m.up);
  section.read("down", m.down);
  section.read("stacked_gate", m.stacked_gate);
  section.read("stacked_up", m.stacked_up);
  section.read("stacked_gate_up", m.stacked_gate_up);
  section.read("stacked_down", m.stacked_down);
  section.read("stacked_transposed", m.stacked_transposed);
  section.read("stacked_down_transposed", m.stacked_down_transposed);
  section.read("stacked_interleaved", m.stacked_interleaved);
  check_stacks(section, m);
  m.shared = read_feed_forward(section, "shared");
  section.read("shared_gate", m.shared_gate);
  section.read("beside_dense", m.beside_dense);
  section.read("if", m.condition);
  section.done();
  return m;
}

BlockArch read_block(const Json& json, const ArchSection& parent, const std::string& key) {
  BlockArch block;
  ArchSection section(json, parent, key);
  block.attention = read_attention(section);
  block.feed_forward = read_feed_forward(section, "feed_forward");
  block.moe = read_moe(section);
  block.attention_norm = read_norm(section, "attention_norm");
  block.attention_post_norm = read_norm(section, "attention_post_norm");
  block.feed_forward_norm = read_norm(section, "feed_forward_norm");
  block.feed_forward_post_norm = read_norm(section, "feed_forward_post_norm");
  block.dense_post_norm = read_norm(section, "dense_post_norm");
  block.moe_norm = read_norm(section, "moe_norm");
  block.moe_post_norm = read_norm(section, "moe_post_norm");
  section.read("parallel", block.parallel);
  section.read("residual_multiplier", block.residual_multiplier);
  section.read("output_scale", block.output_scale);
  section.done();
  return block;
}

void read_layer_types(ArchSection& parent, std::vector<LayerTypeRule>& rules) {
  const Json* json = parent.find("layer_types");
  if (json == nullptr) return;
  if (!json->is_array()) {
    fail(ErrorCode::kInvalidFile, "{}: must be a list of rules", parent.where("layer_types"));
  }
  for (const Json& item : *json) {
    LayerTypeRule rule;
    ArchSection section(item, parent, "layer_types");
    section.read_key("list", rule.list);
    section.read("repeat", rule.repeat);
    section.read("until", rule.until);
    section.read("last", rule.last);
    section.read("every", rule.every);
    section.read("every_is", rule.every_is);
    section.read_key("marks", rule.marks);
    section.read_key("letters", rule.letters);
    section.read("from", rule.from);
    section.read("other", rule.other);
    section.read("if", rule.condition);
    section.done();
    rules.push_back(std::move(rule));
  }
}

void read_rename(ArchSection& parent, std::vector<std::pair<std::string, std::string>>& rename) {
  const Json* json = parent.find("rename");
  if (json == nullptr) return;
  for (const Json& pair : *json) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string() ||
        pair[0].get_ref<const std::string&>().size() < 2) {
      fail(ErrorCode::kInvalidFile, "{}: must be a list of [from, to]", parent.where("rename"));
    }
    rename.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
  }
}

}  // namespace

void read_without_effect(ArchSection& parent, std::vector<std::string>& patterns) {
  const Json* json = parent.find("without_effect");
  if (json == nullptr) return;
  ArchSection section(*json, parent, "without_effect");
  for (const auto& [reason, keys] : json->items()) {
    std::vector<std::string> some;
    section.read(reason.c_str(), some);
    patterns.insert(patterns.end(), some.begin(), some.end());
  }
}

void read_refusals(ArchSection& parent, std::vector<Refusal>& refusals) {
  const Json* json = parent.find("refuse");
  if (json == nullptr) return;
  for (const Json& item : *json) {
    Refusal refusal;
    ArchSection section(item, parent, "refuse");
    section.read("if", refusal.condition);
    section.read("because", refusal.because);
    section.done();
    refusals.push_back(std::move(refusal));
  }
}

namespace {

void read_ends(ArchSection& section, ArchSpec& spec) {
  if (const Json* json = section.find("embed")) {
    ArchSection embed(*json, section, "embed");
    embed.read("name", spec.embed);
    embed.read("multiplier", spec.embed_multiplier);
    embed.read("positions", spec.positions);
    spec.embed_norm = read_norm(embed, "norm");
    embed.done();
  }
  spec.final_norm = read_norm(section, "final_norm");
  if (const Json* json = section.find("head")) {
    ArchSection head(*json, section, "head");
    head.read("name", spec.head);
    head.read("tied", spec.tied);
    head.read("multiplier", spec.head_multiplier);
    head.read("softcap", spec.head_softcap);
    head.read("normalize", spec.normalize_head);
    head.read("bias", spec.head_bias);
    head.done();
  }
}

std::optional<DraftArch> read_draft(ArchSection& parent) {
  const Json* json = parent.find("draft");
  if (json == nullptr) return std::nullopt;
  DraftArch draft;
  ArchSection section(*json, parent, "draft");
  section.read("combine", draft.combine);
  draft.norm = read_norm(section, "norm");
  draft.state_norms = read_norm(section, "state_norms");
  section.read("normalise_features", draft.normalise_features);
  section.read_key("read_layers", draft.read_layers);
  section.read("target_layers", draft.target_layers);
  section.read("stretch", draft.stretch);
  section.read("mask", draft.mask);
  section.read("embed_multiplier", draft.embed_multiplier);
  section.read("head_multiplier", draft.head_multiplier);
  section.read("head_softcap", draft.head_softcap);
  section.done();
  if (draft.combine.empty() || draft.read_layers.empty()) {
    fail(ErrorCode::kInvalidFile, "{}: \"combine\" and \"read_layers\" are needed",
         parent.where("draft"));
  }
  return draft;
}

std::optional<MtpArch> read_mtp(ArchSection& parent) {
  const Json* json = parent.find("mtp");
  if (json == nullptr) return std::nullopt;
  MtpArch mtp;
  ArchSection section(*json, parent, "mtp");
  section.read("layers", mtp.layers);
  mtp.embed_norm = read_norm(section, "embed_norm");
  mtp.state_norm = read_norm(section, "state_norm");
  mtp.final_norm = read_norm(section, "final_norm");
  section.read("combine", mtp.combine);
  section.done();
  if (mtp.combine.empty()) {
    fail(ErrorCode::kInvalidFile, "{}: \"combine\" is needed", parent.where("mtp"));
  }
  return mtp;
}

}  // namespace

ArchSpec parse_arch(const std::string& name, const Json& json) {
  ArchSpec spec;
  spec.name = name;
  spec.text = json_text(json);
  const std::string file = "archs/" + name + ".json";
  ArchSection section(json, file);
  section.find("about");        // a remark for human readers
  section.find("extends");      // already joined
  section.find("gguf");         // read by the GGUF importer
  section.find("model_types");  // read by ArchLibrary
  section.read("match", spec.match);
  section.read("base", spec.base);
  section.read("scope", spec.scopes);
  if (const Json* defaults = section.find("defaults")) {
    spec.defaults = std::make_shared<const Json>(*defaults);
  }
  read_rename(section, spec.rename);
  read_refusals(section, spec.refuse);
  if (const Json* sizes = section.find("sizes")) {
    ArchSection inner(*sizes, section, "sizes");
    for (const auto& [key, value] : sizes->items()) {
      if (!value.is_null()) inner.read(key.c_str(), spec.sizes[key]);
    }
  }
  if (const Json* norms = section.find("norms")) {
    ArchSection inner(*norms, section, "norms");
    read_norm_keys(inner, spec.norms);
    inner.done();
  }
  read_ends(section, spec);
  section.read("layer", spec.layer);
  spec.draft = read_draft(section);
  spec.mtp = read_mtp(section);
  read_layer_types(section, spec.layer_types);
  const Json* block = section.find("block");
  if (block == nullptr) fail(ErrorCode::kInvalidFile, "{}: no \"block\"", file);
  spec.block = read_block(*block, section, "block");
  if (const Json* types = section.find("types")) {
    for (const auto& [type, patch] : types->items()) {
      spec.types[type] = read_block(join_arch(*block, patch), section, "types." + type);
    }
  }
  read_without_effect(section, spec.without_effect);
  if (const Json* equivalent = section.find("equivalent")) {
    spec.equivalent = std::make_shared<const Json>(*equivalent);
  }
  section.done();
  spec.config_keys = section.config_keys();
  return spec;
}

}  // namespace bl
