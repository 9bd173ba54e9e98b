#pragma once
// An architecture as archs/*.json describes it: where sizes come from, what tensors are called,
// which kinds of layers it has. archs/README.md explains every key. Joined with a config it gives a
// ModelSpec (spec_builder.h).

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "model/arch_value.h"

namespace bl {

// Names that a tensor may have, best first, relative to what owns it.
using Names = std::vector<std::string>;

inline constexpr std::int64_t kMaxLayers = 1 << 12;  // that a model may have

struct NormArch {
  Names name;
  std::optional<std::string> kind;  // "rms", "layer"; else the model's
  ArchValue eps;
  std::optional<bool> unit_offset;
  std::optional<bool> weighted;
  Condition condition;
};

struct QkNormArch {
  NormArch norm;
  bool across_heads = false;
  bool after_rope = false;
};

struct RopeArch {
  std::string style = "neox";  // or "interleaved"
  ArchValue theta;
  ArchValue partial;      // share of head_dim
  ArchValue rotary_dim;   // or elements
  bool scaling = true;    // false: these layers ignore a rope_scaling that is not theirs
  ArchValue query_beta;   // scaling of queries by position
  ArchValue original;     // positions of one step of it
  std::string layers;     // key of a list: 1 where a layer rotates
  ArchValue skip_every;   // without that list: every n-th layer does not rotate
  bool reversed = false;  // turns the other way
  Condition condition;
};

struct AttentionArch {
  std::string at = "self_attn";
  ArchValue heads, kv_heads, head_dim;
  Names q{"q_proj"}, k{"k_proj"}, v{"v_proj"}, o{"o_proj"}, qkv, gate, sinks;
  std::string packing = "concat";  // of qkv: or "groups": [q … q k v] a kv head
  std::string gate_kind;           // "sigmoid_head", "softplus_head", "sigmoid_element"
  Condition gate_condition;
  bool transposed = false;
  std::optional<QkNormArch> q_norm, k_norm;
  std::optional<NormArch> v_norm;
  ArchValue scale, softcap, clip, window, alibi;
  ArchValue causal;        // false: tokens that are guessed together see each other (drafts alone)
  Condition value_is_key;  // with no terms: never
  std::optional<RopeArch> rope;
  Condition absent;  // layers without attention; with no terms: none
};

struct FeedForwardArch {
  std::string at = "mlp";
  Names gate{"gate_proj"}, up{"up_proj"}, down{"down_proj"}, gate_up, xielu;
  bool gated = true;
  bool transposed = false;
  bool limit_after = false;
  ArchValue size, activation, limit;
  Condition absent;
};

// Which layers route: as a list of kinds says where the config has one; else all given rules agree.
struct MoeRule {
  ArchValue first;      // the first such layer
  ArchValue last;       // the last
  ArchValue step;       // every step-th: (i + 1) % step == 0
  ArchValue offset;     // with step: (i - first) % step == 0 instead when true
  std::string except;   // key of a list of layers that do not
  std::string only;     // key of a list (or comma-separated string) of those that do
  std::string kinds;    // key of a list of words, one a layer
  std::string kind_is;  // the word that routes
};

struct MoeArch {
  MoeRule when;
  std::string at = "mlp";
  Names router{"gate"}, selection_bias, expert_scale;
  std::optional<NormArch> router_norm;  // of the residual stream; without: reads what experts read
  Names router_scale;                   // stands for the weight of an unweighted router_norm
  ArchValue router_multiplier;
  ArchValue experts, per_token, size, normalize, scale, groups, group_top, normalize_power, limit,
      activation;
  ArchValue route;  // "softmax", "softmax_topk", "sigmoid", "sqrt_softplus"
  Names gate{"experts.{e}.gate_proj"}, up{"experts.{e}.up_proj"}, down{"experts.{e}.down_proj"};
  Names stacked_gate, stacked_up, stacked_gate_up, stacked_down;  // [experts, …]
  bool stacked_transposed = false;                                // [experts, in, out]
  std::optional<bool> stacked_down_transposed;                    // else like the others
  bool stacked_interleaved = false;                               // gate, up, gate, up, …
  bool gated = true;
  bool limit_after = false;
  std::optional<FeedForwardArch> shared;
  Names shared_gate;
  bool beside_dense = false;  // the layer has its dense feed-forward too
  Condition condition;
};

struct BlockArch {
  std::optional<AttentionArch> attention;
  std::optional<FeedForwardArch> feed_forward;
  std::optional<MoeArch> moe;
  std::optional<NormArch> attention_norm, attention_post_norm, feed_forward_norm,
      feed_forward_post_norm, dense_post_norm, moe_norm, moe_post_norm;
  ArchValue parallel;
  ArchValue residual_multiplier;
  Names output_scale;
};

// How a layer's type is found where config.json does not list it.
struct LayerTypeRule {
  std::string list;                 // key of a list of types
  std::vector<std::string> repeat;  // a cycle of types
  ArchValue every;                  // every n-th layer is full_attention, others `other`
  std::string letters;              // key of a string of L (sliding) and G (full); last is full
  ArchValue from;                   // layers ≥ this are `other`, those before full_attention
  std::string other = "sliding_attention";
  Condition condition;
};

// Side layers that read the hidden states of another model, or of their own, to guess how its texts
// go on. They have neither embedding nor head (model/draft_spec.h).
struct DraftArch {
  Names combine;                        // the linear that reads those states side by side
  std::optional<NormArch> norm;         // of what it makes of them
  std::optional<NormArch> state_norms;  // of state {i} before, each has its own
  bool normalise_features = false;      // by each layer's norm in front of its keys
  Names read_layers;           // keys of a list: layers of the target whose outputs are read
  ArchValue target_layers;     // that the target has; absent: any number
  ArchValue stretch;           // tokens that are read at once: a text's last one, and masks
  ArchValue mask;              // the token that stands where one is to be guessed
  ArchValue embed_multiplier;  // of the target's embedding, as its table has it
  ArchValue head_multiplier, head_softcap;  // in place of the target's
};

// Layers behind a model's own that guess one token each from its normed hidden state and the token
// behind it. Their blocks are described as the last of the model's, and names are below theirs.
struct MtpArch {
  ArchValue layers;  // how many there are; the first is used, again and again
  std::optional<NormArch> embed_norm, state_norm, final_norm;
  Names combine;  // the linear that reads embedding and state side by side
};

// A config that the description does not cover.
struct Refusal {
  Condition condition;
  std::string because;
};

struct ArchSpec {
  std::string name;  // file name without .json
  std::string text;  // of the whole document, with `extends` joined
  std::vector<std::string> match;
  std::vector<std::string> scopes{""};
  std::shared_ptr<const Json> defaults;  // object of what stands in for absent keys, or none
  std::vector<std::pair<std::string, std::string>> rename;
  std::map<std::string, ArchValue> sizes;
  NormArch norms;  // kind, eps and offset that norms have unless they say otherwise
  std::vector<Refusal> refuse;
  Names embed;
  ArchValue embed_multiplier;
  Names positions;
  std::optional<NormArch> embed_norm;
  std::string layer;  // "model.layers.{i}"
  std::vector<LayerTypeRule> layer_types;
  BlockArch block;
  std::map<std::string, BlockArch> types;  // of layers with a type of their own
  std::optional<NormArch> final_norm;
  Names head;
  ArchValue tied, head_multiplier, head_softcap;
  ArchValue normalize_head;  // rows of a plain head have length 1
  ArchValue bos, eos;
  std::optional<DraftArch> draft;  // what it is, where it is no model by itself
  std::optional<MtpArch> mtp;
};

// `json` is one document with `extends` already joined. Throws kInvalidFile naming file and key;
// an unknown key is an error.
ArchSpec parse_arch(const std::string& name, const Json& json);

}  // namespace bl
