#include "model/draft_spec.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "model/arch_library.h"
#include "model/block_builder.h"
#include "model/config_keys.h"
#include "model/hf_config.h"
#include "model/numbered_name.h"

namespace bl {
namespace {

constexpr std::int64_t kMostStates = 64;
constexpr std::int64_t kMostStretch = 128;
constexpr std::int64_t kMostTargetLayers = kMaxLayers;
// The later guesses of a chain are seldom right, and each costs a forward pass of its own.
constexpr std::int64_t kMostChained = 8;

// Reads the list of target layers whose outputs are needed and checks that `target` has them. The
// output of layer i is the stream after i + 1 blocks.
std::vector<std::int32_t> read_states(const DraftArch& arch, const HfConfig& config,
                                      const ModelSpec& target) {
  std::optional<HfConfig::Found> found;
  for (const std::string& key : arch.read_layers) {
    if (!found) found = config.find(key);
  }
  if (!found) {
    fail(ErrorCode::kInvalidFile, "{}: {} is missing: the layers of the model that are read",
         config.file(), arch.read_layers.front());
  }
  const Json& list = *found->value;
  const auto refuse = [&](const std::string& must) {
    fail(ErrorCode::kInvalidFile, "{}: {} is {}, must be {}", config.file(), found->path,
         json_text(list).substr(0, 80), must);
  };
  if (!list.is_array() || list.empty() || std::ssize(list) > kMostStates) {
    refuse(fmt::format("a list of 1 to {} layers", kMostStates));
  }
  std::vector<std::int32_t> states;
  const auto blocks = static_cast<std::int64_t>(target.order.size());
  for (const Json& item : list) {
    if (!item.is_number_integer() || item.get<double>() < 0 ||
        item.get<double>() >= static_cast<double>(kMostTargetLayers)) {
      refuse("a list of layer numbers");
    }
    const auto layer = item.get<std::int64_t>();
    if (layer >= blocks) {
      fail(ErrorCode::kInvalidArgument,
           "the draft reads layer {} ({}: {}), and the model has layers 0 … {}: it was made for "
           "another one",
           layer, config.file(), found->path, blocks - 1);
    }
    states.push_back(static_cast<std::int32_t>(layer + 1));
  }
  return states;
}

void check_target(const DraftArch& arch, const ArchEvaluator& at, const DraftSpec& spec,
                  const ModelSpec& target) {
  if (spec.layers.hidden != target.hidden) {
    fail(ErrorCode::kInvalidArgument,
         "the draft has a hidden size of {} ({}), the model one of {}: it was made for another one",
         spec.layers.hidden, at.config().file(), target.hidden);
  }
  const auto layers =
      at.find_whole("number of the model's layers", arch.target_layers, {1, kMostTargetLayers});
  if (layers && *layers != target.layers) {
    fail(ErrorCode::kInvalidArgument, "the draft is for a model of {} layers ({}), this one has {}",
         *layers, at.config().file(), target.layers);
  }
  if (spec.mask >= target.vocab) {
    fail(ErrorCode::kInvalidArgument,
         "the draft's mask is token {} ({}), and the model's vocabulary has {}", spec.mask,
         at.config().file(), target.vocab);
  }
}

void check_layers(const DraftSpec& spec) {
  for (const BlockSpec& block : spec.layers.blocks) {
    if (!block.attention) {
      fail(ErrorCode::kUnsupported, "{}: a draft's layer without attention is not supported",
           spec.layers.config_file);
    }
    if (!block.attention->causal && block.attention->window > 0) {
      fail(ErrorCode::kUnsupported,
           "{}: a sliding window of a layer that is not causal is not supported",
           spec.layers.config_file);
    }
  }
}

}  // namespace

DraftSpec build_draft_spec(const ArchLibrary& archs, const HfConfig& config,
                           const ModelSpec& target) {
  DraftSpec spec;
  spec.layers = build_model_spec(archs, config, {});
  const ArchSpec& arch = *spec.layers.arch;
  if (!arch.draft) {
    fail(ErrorCode::kInvalidArgument, "{}: {} is a model by itself, not layers beside another one",
         config.file(), spec.layers.architecture);
  }
  const DraftArch& draft = *arch.draft;
  const ArchEvaluator at(config, arch.sizes);
  spec.states = read_states(draft, config, target);
  spec.norm = build_norm(arch, draft.norm, at);
  spec.state_norm = build_norm(arch, draft.state_norms, at);
  spec.normalise_features = draft.normalise_features;
  spec.stretch = at.whole("size of a block of guesses", draft.stretch, {2, kMostStretch});
  spec.mask = static_cast<std::int32_t>(at.whole("mask token", draft.mask, {0, INT32_MAX}));
  const auto factor = [&](const char* what, const ArchValue& value, float otherwise) {
    const double number = at.real(what, value, otherwise);
    if (!(number >= 0 && number <= 1e6)) {
      fail(ErrorCode::kInvalidFile, "{}: the {} is {}, must be from 0 to 1e6", config.file(), what,
           number);
    }
    return static_cast<float>(number);
  };
  spec.embed_multiplier = factor("multiplier of the embedding", draft.embed_multiplier, 1.0f);
  spec.head_multiplier =
      factor("multiplier of the logits", draft.head_multiplier, target.head_multiplier);
  spec.head_softcap = factor("soft cap of the logits", draft.head_softcap, target.head_softcap);
  check_target(draft, at, spec, target);
  check_layers(spec);
  return spec;
}

DraftSpec build_mtp_spec(const HfConfig& config, const ModelSpec& model) {
  if (!model.arch->mtp) {
    fail(ErrorCode::kUnsupported, "{}: no layers for multi-token prediction are known of {}",
         config.file(), model.architecture);
  }
  const MtpArch& mtp = *model.arch->mtp;
  HfConfig scoped = config;
  prepare_config(*model.arch, scoped);
  const ArchEvaluator at(scoped, model.arch->sizes);
  const auto count = at.find_whole("number of MTP layers", mtp.layers, {0, kMaxLayers});
  if (count.value_or(0) == 0) {
    fail(ErrorCode::kInvalidArgument,
         "{}: the model has no layers for multi-token prediction, which --draft mtp would use",
         config.file());
  }
  DraftSpec spec;
  spec.chain = true;
  spec.normalise_features = true;
  spec.layers = model;
  const auto arch = std::make_shared<ArchSpec>(*model.arch);
  arch->layer = with_number(arch->layer, "{i}", model.layers);
  spec.layers.arch = arch;
  spec.layers.layers = 1;
  spec.layers.blocks = {model.blocks.back()};
  spec.layers.layer_types = {model.layer_types.back()};
  spec.layers.denied_biases = {model.denied_biases.back()};
  spec.layers.order = {0};
  spec.layers.final_norm = build_norm(*arch, mtp.final_norm, at);
  spec.states = {static_cast<std::int32_t>(model.order.size())};
  spec.norm = build_norm(*arch, mtp.state_norm, at);
  spec.embed_norm = build_norm(*arch, mtp.embed_norm, at);
  spec.stretch = 1 + kMostChained;
  spec.embed_multiplier = model.embed_multiplier;
  spec.head_multiplier = model.head_multiplier;
  spec.head_softcap = model.head_softcap;
  check_layers(spec);
  return spec;
}

}  // namespace bl
