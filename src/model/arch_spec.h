#pragma once
// An architecture as archs/*.json describes it: where sizes come from, what tensors are called,
// which kinds of layers it has. archs/README.md explains every key. build_model_spec() joins it
// with a config into a ModelSpec.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "model/arch_value.h"

namespace bl {

// Names that a tensor may have, best first, relative to the module that owns it.
using Names = std::vector<std::string>;

inline constexpr std::int64_t kMaxLayers = 1 << 12;  // the most that a model may have

struct NormArch {
  Names name;
  std::optional<std::string> kind;  // "rms" or "layer"; default: the model's
  ArchValue eps;
  std::optional<bool> unit_offset;
  std::optional<bool> weighted;
  ArchValue bias;  // whether files hold one; else the model's
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
  ArchValue partial;      // rotated share of head_dim
  ArchValue rotary_dim;   // or rotated elements
  bool scaling = true;    // false: these layers ignore the model's rope_scaling
  bool nested = false;    // rope_parameters that are not by type of layer are ignored
  ArchValue query_beta;   // scaling of queries by position
  ArchValue original;     // positions per step of that scaling
  std::string layers;     // key of a list with 1 for layers that rotate
  ArchValue skip_every;   // if there is no such list: every n-th layer does not rotate
  bool reversed = false;  // rotates in the other direction
  Condition condition;
};

struct AttentionArch {
  std::string at = "self_attn";
  ArchValue heads, kv_heads, head_dim;
  Names q{"q_proj"}, k{"k_proj"}, v{"v_proj"}, o{"o_proj"}, qkv, gate, sinks;
  std::string packing = "concat";  // of qkv; "groups": [q … q k v] for each kv head
  std::string gate_kind;           // "sigmoid_head", "softplus_head", "sigmoid_element"
  Condition gate_condition;
  bool transposed = false;
  // Whether files hold biases of the projections and of the output. Loading takes what is there.
  ArchValue bias, o_bias;
  std::optional<QkNormArch> q_norm, k_norm;
  std::optional<NormArch> v_norm;
  ArchValue scale, softcap, clip, window, alibi;
  ArchValue causal;        // false: tokens that are guessed together see each other (drafts only)
  Condition value_is_key;  // without terms: never
  std::optional<RopeArch> rope;
  Condition absent;  // for layers without attention; without terms: none
};

struct FeedForwardArch {
  std::string at = "mlp";
  Names gate{"gate_proj"}, up{"up_proj"}, down{"down_proj"}, gate_up, xielu;
  bool gated = true;
  bool fused = false;  // files hold gate_up rather than gate and up. Loading takes what is there
  bool transposed = false;
  bool limit_after = false;
  ArchValue size, activation, limit;
  ArchValue bias;  // whether files hold biases, likewise
  Condition absent;
};

// Which layers route to experts. A list of kinds decides if the config has one; else all rules that
// are given must agree.
struct MoeRule {
  ArchValue first;      // the first such layer
  ArchValue last;       // the last
  ArchValue step;       // every step-th layer: (i + 1) % step == 0
  ArchValue offset;     // if true, with step: (i - first) % step == 0 instead
  std::string except;   // key of a list of layers that do not route
  std::string only;     // key of a list (or comma-separated string) of layers that do
  std::string kinds;    // key of a list with one word per layer
  std::string kind_is;  // the word for layers that route
};

struct MoeArch {
  MoeRule when;
  std::string at = "mlp";
  Names router{"gate"}, selection_bias, expert_scale;
  std::optional<NormArch> router_norm;  // of the residual stream; absent: reads the experts' input
  Names router_scale;                   // the weight of a router_norm that has none by its own name
  ArchValue router_multiplier;
  ArchValue router_bias, bias;  // whether files hold biases of the router and of routed experts
  ArchValue experts, per_token, size, normalize, scale, groups, group_top, normalize_power, limit,
      activation;
  ArchValue route;  // "softmax", "softmax_topk", "sigmoid", "sqrt_softplus"
  Names gate{"experts.{e}.gate_proj"}, up{"experts.{e}.up_proj"}, down{"experts.{e}.down_proj"};
  Names stacked_gate, stacked_up, stacked_gate_up, stacked_down;  // [experts, …]
  bool stacked_transposed = false;                                // [experts, in, out]
  std::optional<bool> stacked_down_transposed;                    // default: like the others
  bool stacked_interleaved = false;                               // gate, up, gate, up, …
  bool gated = true;
  bool limit_after = false;
  std::optional<FeedForwardArch> shared;
  Names shared_gate;
  bool beside_dense = false;  // the layer also has its dense feed-forward
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

// How a layer's type follows from other keys if config.json does not list the types.
struct LayerTypeRule {
  std::string list;                 // key of a list of types
  std::vector<std::string> repeat;  // a cycle of types
  ArchValue until;                  // of that cycle: layers from this one on are full_attention
  ArchValue every;                  // every n-th layer is `every_is`, the rest are `other`
  std::string every_is = "full_attention";
  std::string marks;    // key of a list: layers with a 0 are `other`, the rest full
  std::string letters;  // key of a string of L (sliding) and G (full); the last is full
  ArchValue from;       // layers from this one on are `other`, earlier full_attention
  std::string other = "sliding_attention";
  std::string
      last;  // the type of the last layer, whatever the rule says; empty: what the rule says
  Condition condition;
};

// Side layers that read the hidden states of another model, or of their own, to guess how its texts
// continue. They have neither embedding nor head (model/draft_spec.h).
struct DraftArch {
  Names combine;                        // the linear that reads these states side by side
  std::optional<NormArch> norm;         // of the output of `combine`
  std::optional<NormArch> state_norms;  // of each state {i} before `combine`
  bool normalise_features = false;      // each layer's norm applies before its keys
  Names read_layers;           // keys of a list of the target's layers whose outputs are read
  ArchValue target_layers;     // number of layers the target must have; absent: any
  ArchValue stretch;           // tokens that are read at once: a text's last one, and masks
  ArchValue mask;              // the token that marks a position to guess
  ArchValue embed_multiplier;  // of the target's stored embedding
  ArchValue head_multiplier, head_softcap;  // instead of the target's
};

// Layers after a model's own, each of which guesses one token from the model's normalised hidden
// state and the token after it (multi-token prediction). Their blocks are described like the
// model's last one, and names are relative to the layer.
struct MtpArch {
  ArchValue layers;  // how many there are; only the first is used, repeatedly
  std::optional<NormArch> embed_norm, state_norm, final_norm;
  Names combine;  // the linear that reads embedding and state side by side
};

// A kind of config that the description does not cover.
struct Refusal {
  Condition condition;
  std::string because;
};

// What transformers' config class of an architecture says about config.json
// (archs/class-options.json).
struct ClassOptions {
  std::shared_ptr<const Json> defaults;        // object: option → value of an absent key, or null
  std::map<std::string, std::string> aliases;  // other name of an option → its name
};

struct ArchSpec {
  std::string name;  // file name without .json
  std::string text;  // the whole document, with `extends` joined
  std::vector<std::string> match;
  std::vector<std::string> scopes{""};
  std::shared_ptr<const Json> defaults;  // object with values of absent keys, or none
  // By model_type of the text model where it may be of several kinds, else under "" alone. Empty:
  // transformers does not know the architecture.
  std::map<std::string, ClassOptions> class_options;
  std::string text_kind;              // the kind of a text model that does not say its own
  std::set<std::string> config_keys;  // keys of config.json that the description names
  // Keys of config.json that have no effect: patterns in which `*` is any text.
  std::vector<std::string> without_effect;
  // Values of options that nothing reads and that mean the same as their defaults: option → list.
  std::shared_ptr<const Json> equivalent;
  std::vector<std::pair<std::string, std::string>> rename;
  std::string base;  // what names have in front that a checkpoint without a head may lack: "model"
  std::map<std::string, ArchValue> sizes;
  NormArch norms;  // default kind, eps and offset of norms
  std::vector<Refusal> refuse;
  Names embed;
  ArchValue embed_multiplier;
  Names positions;
  std::optional<NormArch> embed_norm;
  std::string layer;  // "model.layers.{i}"
  std::vector<LayerTypeRule> layer_types;
  BlockArch block;
  std::map<std::string, BlockArch> types;  // blocks of layers with another type
  std::optional<NormArch> final_norm;
  Names head;
  ArchValue tied, head_multiplier, head_softcap;
  ArchValue normalize_head;  // rows of a plain head are scaled to length 1
  ArchValue head_bias;       // whether files hold a bias of the head
  ArchValue bos, eos;
  std::optional<DraftArch> draft;  // set if this is no model by itself but side layers
  std::optional<MtpArch> mtp;
};

class ArchSection;

// The lists "refuse" and "without_effect" of a document.
void read_refusals(ArchSection& parent, std::vector<Refusal>& refusals);
void read_without_effect(ArchSection& parent, std::vector<std::string>& patterns);

// `json` is one document with `extends` already joined. Throws kInvalidFile naming file and key;
// an unknown key is an error.
ArchSpec parse_arch(const std::string& name, const Json& json);

}  // namespace bl
