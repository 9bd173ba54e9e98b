#include "model/model_spec.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "model/arch_library.h"
#include "model/block_builder.h"
#include "model/config_keys.h"
#include "model/hf_config.h"
#include "model/layer_map.h"
#include "model/layer_types.h"

namespace bl {
namespace {

constexpr std::int64_t kMaxHidden = 1 << 20;
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 26;
constexpr std::int64_t kMaxPositions = (std::int64_t{1} << 31) - 1;

const ArchValue& size_of_model(const ArchSpec& arch, const char* name) {
  const auto it = arch.sizes.find(name);
  if (it == arch.sizes.end()) {
    fail(ErrorCode::kInvalidFile, "archs/{}.json: sizes has no \"{}\"", arch.name, name);
  }
  return it->second;
}

std::vector<std::int32_t> read_ids(const HfConfig& config, const char* key) {
  std::vector<std::int32_t> ids;
  const auto found = config.find(key);
  if (!found) return ids;
  const auto add = [&](const Json& item) {
    if (!item.is_number_integer() || item.get<double>() < -1 ||
        item.get<double>() > static_cast<double>(kMaxVocab)) {
      fail(ErrorCode::kInvalidFile, "{}: {} holds {}, must hold token ids", config.file(),
           found->path, json_text(item).substr(0, 60));
    }
    if (item.get<std::int32_t>() >= 0) ids.push_back(item.get<std::int32_t>());
  };
  if (found->value->is_array()) {
    for (const Json& item : *found->value) add(item);
  } else {
    add(*found->value);
  }
  return ids;
}

void read_sizes(const ArchSpec& arch, const ArchEvaluator& at, ModelSpec& spec) {
  spec.hidden = at.whole("hidden size", size_of_model(arch, "hidden"), {1, kMaxHidden});
  spec.layers = at.whole("number of layers", size_of_model(arch, "layers"), {1, kMaxLayers});
  spec.vocab = at.whole("vocabulary size", size_of_model(arch, "vocab"), {1, kMaxVocab});
  spec.max_positions =
      at.whole("longest context", size_of_model(arch, "max_positions"), {1, kMaxPositions});
}

void check_options(const SpecOptions& options) {
  const auto check = [](const char* name, double value) {
    if (value != 0.0 && !(value >= 1e-6 && value <= 1e6)) {
      fail(ErrorCode::kInvalidArgument, "--{} is {}, must be a positive number", name, value);
    }
  };
  check("rope-scale", options.rope_scale);
  check("rope-alpha", options.rope_alpha);
  if (options.context < 0 || options.context > kMaxPositions) {
    fail(ErrorCode::kInvalidArgument, "--ctx is {}, must be from 1 to {}", options.context,
         kMaxPositions);
  }
}

void check_refusals(const ArchSpec& arch, const ArchEvaluator& at) {
  for (const Refusal& refusal : arch.refuse) {
    if (!at.holds(refusal.condition)) continue;
    const std::string key = key_of_term(refusal.condition.terms.at(0));
    const auto found = at.config().find(key);
    fail(ErrorCode::kUnsupported, "{}: {} is {}, which is not supported ({})", at.config().file(),
         found ? found->path : key, found ? json_shown(*found->value) : "absent", refusal.because);
  }
}

float positive(const ArchEvaluator& at, const char* what, const ArchValue& value, double fallback) {
  const double number = at.real(what, value, fallback);
  if (number < 0.0) {
    fail(ErrorCode::kInvalidFile, "{}: the {} is {}, must not be negative", at.config().file(),
         what, number);
  }
  return static_cast<float>(number);
}

}  // namespace

const BlockArch& ModelSpec::block_arch(std::size_t layer) const {
  const auto it = arch->types.find(layer_types[layer]);
  return it == arch->types.end() ? arch->block : it->second;
}

bool ModelSpec::runs(std::size_t layer) const {
  return std::find(order.begin(), order.end(), static_cast<std::int32_t>(layer)) != order.end();
}

bool ModelSpec::runs_each_once() const { return order == parse_layer_map("", layers); }

int ModelSpec::kv_layers() const {
  return static_cast<int>(std::count_if(order.begin(), order.end(), [this](std::int32_t layer) {
    return blocks[static_cast<std::size_t>(layer)].attention.has_value();
  }));
}

std::vector<KvLayout> ModelSpec::kv_layouts(CacheTypes type) const {
  std::vector<KvLayout> layouts;
  for (const std::int32_t layer : order) {
    const BlockSpec& block = blocks[static_cast<std::size_t>(layer)];
    if (!block.attention) continue;
    layouts.push_back({.type = type,
                       .kv_heads = block.attention->kv_heads,
                       .k_dim = block.attention->head_dim,
                       .v_dim = block.attention->head_dim});
  }
  return layouts;
}

namespace {

void read_model(const HfConfig& config, const SpecOptions& options, ModelSpec& spec) {
  const ArchSpec& arch = *spec.arch;
  const ArchEvaluator at(config, arch.sizes);
  check_refusals(arch, at);
  read_sizes(arch, at, spec);
  check_options(options);
  spec.context = options.context > 0 ? options.context : spec.max_positions;
  spec.embed_multiplier = positive(at, "multiplier of the embedding", arch.embed_multiplier, 1.0);
  spec.embed_norm = build_norm(arch, arch.embed_norm, at);
  spec.final_norm = build_norm(arch, arch.final_norm, at);
  spec.head_multiplier = positive(at, "multiplier of the logits", arch.head_multiplier, 1.0);
  spec.head_softcap = positive(at, "soft cap of the logits", arch.head_softcap, 0.0);
  spec.normalize_head = at.flag("normalised head", arch.normalize_head, false);
  spec.tied = at.flag("tied embeddings", arch.tied, false);
  spec.bos_ids = read_ids(config, "bos_token_id");
  spec.eos_ids = read_ids(config, "eos_token_id");
  BlockBuilder builder(arch, at, options, spec);
  spec.layer_types = layer_types(arch, at, spec.layers);
  for (std::int64_t i = 0; i < spec.layers; ++i) {
    const auto index = static_cast<std::size_t>(i);
    spec.blocks.push_back(builder.build(i, spec.layer_types[index], spec.block_arch(index)));
    spec.denied_biases.push_back(builder.denied_biases(i, spec.block_arch(index)));
  }
  spec.order = parse_layer_map(options.layer_map, spec.layers);
}

}  // namespace

ModelSpec build_model_spec(const ArchLibrary& archs, HfConfig config, const SpecOptions& options) {
  ModelSpec spec;
  ArchLibrary::Choice choice = archs.find(config);
  if (choice.by_type) {
    log_warning("{}: {} is read as {}, the language model of its model_type", config.file(),
                json_text(Json(config.architecture().substr(0, 80))), choice.architecture);
  }
  spec.architecture = std::move(choice.architecture);
  spec.config_file = config.file();
  const auto arch = std::make_shared<ArchSpec>(std::move(choice.spec));
  spec.arch = arch;
  prepare_config(*arch, config);
  try {
    read_model(config, options, spec);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidFile) throw;
    throw Error(error.code(),
                error.what() + note_of_sizes(config.sizes(), spec.architecture, error.what()));
  }
  spec.sizes = config.sizes();
  spec.unknown_keys = unknown_keys(*arch, config);
  return spec;
}

}  // namespace bl
