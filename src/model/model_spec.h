#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/arch_spec.h"
#include "model/hf_config.h"
#include "nn/block.h"
#include "nn/rope_table.h"
#include "ops/kv_layout.h"

namespace bl {

class ArchLibrary;

// The keys of the config that say that linears of a block have no bias; empty: they may have one.
struct DeniedBiases {
  std::string projections, output, feed_forward;
};

// What a model is, as a value: an architecture joined with a config. Every number has been checked,
// and products of sizes do not overflow.
struct ModelSpec {
  std::string architecture;
  std::string config_file;  // for messages
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t vocab = 0;          // logits per row; the embedding may have more rows
  std::int64_t max_positions = 0;  // as the config says
  std::int64_t context = 0;        // max_positions, or what the user asked for
  float embed_multiplier = 1.0f;
  std::vector<RopeSpec> ropes;
  std::vector<BlockSpec> blocks;
  std::vector<std::string> layer_types;     // of each block
  std::vector<DeniedBiases> denied_biases;  // of each block
  std::vector<std::int32_t> order;  // blocks in the order they run: each once, or by a layer map
  std::optional<NormSpec> embed_norm;
  std::optional<NormSpec> final_norm;
  float head_multiplier = 1.0f;
  float head_softcap = 0.0f;
  bool normalize_head = false;
  bool tied = false;
  std::vector<std::int32_t> bos_ids;  // from the config; may be empty
  std::vector<std::int32_t> eos_ids;
  std::shared_ptr<const ArchSpec> arch;  // names of tensors
  // Keys of the config that have no known meaning, as full paths (model/config_keys.h).
  std::vector<std::string> unknown_keys;
  HfConfig::Sizes sizes;  // for messages about tensors that do not fit the config

  // The description that names the tensors of a block.
  const BlockArch& block_arch(std::size_t layer) const;
  // Whether a block runs at all.
  bool runs(std::size_t layer) const;
  bool runs_each_once() const;  // and in order
  int kv_layers() const;        // blocks with attention, in `order`
  // The cache layout of each of these.
  std::vector<KvLayout> kv_layouts(CacheTypes type) const;
};

// What the user may override.
struct SpecOptions {
  double rope_scale = 0.0;   // positions divided by this; 0: as the config says
  double rope_alpha = 0.0;   // theta · alpha^(d/(d−2)); 0: as the config says
  std::int64_t context = 0;  // 0: as the config says
  std::string layer_map{};   // parse_layer_map()
};

// Throws kInvalidFile (naming config.json, key, value, what would be right) or kUnsupported.
ModelSpec build_model_spec(const ArchLibrary& archs, HfConfig config, const SpecOptions& options);

}  // namespace bl
