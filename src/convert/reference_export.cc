#include "convert/reference_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/error.h"
#include "convert/reference_options.h"

namespace bl {
namespace {

constexpr double kLeastAccuracy = 1e-6;  // that the reference writes

// A linear with what was measured of it.
struct Measured {
  const LinearMeasurement* linear = nullptr;
  bool bias = false;
};

// All linears of one name, several where it is one of experts.
using Linears = std::map<std::string, std::vector<Measured>>;

// What one mix costs: the predicted KL divergence, and bits in the file.
struct Cost {
  double kl = 0.0;
  std::int64_t bits = 0;
};

const WidthCurve& curve_of(const LinearMeasurement& linear, int bits, std::int32_t size) {
  const auto found = std::find_if(
      linear.curves.begin(), linear.curves.end(),
      [&](const WidthCurve& curve) { return curve.bits == bits && curve.group_size == size; });
  if (found == linear.curves.end()) {
    fail(ErrorCode::kInvalidFile, "the measurement says nothing of {} with {} bits in groups of {}",
         linear.key, bits, size);
  }
  return *found;
}

Cost cost_of(const Measured& measured, const Mix& mix) {
  const LinearMeasurement& linear = *measured.linear;
  const MixGroups mixed = groups_of(mix, linear.in);
  Cost cost{0.0, stored_bits(mixed.groups, linear.in, linear.out)};
  if (measured.bias) cost.bits += 16 * linear.out;
  std::size_t run = 0;
  for (std::size_t g = 0; g < mixed.groups.size(); ++g) {
    const SlotGroup& group = mixed.groups[g];
    const WidthCurve& curve = curve_of(linear, group.bits, mixed.sizes[g]);
    for (std::int64_t i = 0; i < group.slots / 32; ++i) cost.kl += curve.errors.at(run++);
  }
  cost.kl *= linear.sensitivity;
  return cost;
}

Json mix_json(const Mix& mix) {
  Json sizes = Json::object(), bits = Json::array(), shares = Json::array();
  for (const MixPart& part : mix) {
    sizes[std::to_string(part.bits)] = part.group_size;
    bits.push_back(part.bits);
    shares.push_back(part.share);
  }
  return {{"group_size", sizes}, {"bits", bits}, {"bits_prop", shares}, {"scale_bits", 4}};
}

// Names of the linears of a module, in the order of its options' mixes.
using Names = std::vector<std::string>;

// The options of a module; a linear that the model has not, such as a gate, is left out.
template <class Option>
Json options_json(const std::string& module, const Names& names, std::span<const Option> options,
                  const Linears& linears) {
  Json result = Json::array();
  for (const Option& option : options) {
    Json entry = Json::object();
    Cost sum;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto found = linears.find(module + "." + names[i]);
      if (found == linears.end()) continue;
      for (const Measured& measured : found->second) {
        const Cost cost = cost_of(measured, option[i]);
        sum.kl += cost.kl;
        sum.bits += cost.bits;
      }
      entry[names[i]] = mix_json(option[i]);
    }
    entry["accuracy"] = std::max(1.0 - std::sqrt(sum.kl), kLeastAccuracy);
    entry["total_bits"] = sum.bits;
    result.push_back(std::move(entry));
  }
  return result;
}

// Whether the reference has modules for all linears of the block.
bool is_known(const BlockSpec& block, bool experts) {
  if (!block.attention || block.attention->value_is_key) return false;
  if (block.attention->gate != AttentionGate::kNone) return false;
  if (!experts) return block.feed_forward && !block.moe;
  return block.moe && !block.feed_forward && !block.moe->shared && block.moe->expert.gated;
}

Json block_json(const std::string& layer, const BlockSpec& block, const Linears& linears) {
  const std::string at = layer + ".self_attn";
  Json attention =
      options_json(at, {"q_proj", "k_proj", "v_proj", "o_proj"}, attention_options(), linears);
  if (block.moe) {
    const std::string experts = layer + ".block_sparse_moe";
    return {{at, std::move(attention)},
            {experts, options_json(experts, {"w1", "w3", "w2"}, mlp_options(), linears)}};
  }
  const std::string dense = layer + ".mlp";
  Json mlp = options_json(dense, {"gate_proj", "up_proj", "down_proj"}, mlp_options(), linears);
  if (!block.parallel) return {{at, std::move(attention)}, {dense, std::move(mlp)}};
  return {{layer + ".parallel_decoder", {{"attn", std::move(attention)}, {"mlp", std::move(mlp)}}}};
}

std::string layer_name(std::int32_t layer) { return fmt::format("model.layers.{}", layer); }

}  // namespace

std::string reference_name(const LoadTarget& target) {
  static const std::map<Role, std::array<const char*, 2>> names{
      {Role::kQ, {".self_attn.q_proj", nullptr}},
      {Role::kK, {".self_attn.k_proj", nullptr}},
      {Role::kV, {".self_attn.v_proj", nullptr}},
      {Role::kO, {".self_attn.o_proj", nullptr}},
      {Role::kGate, {".mlp.gate_proj", ".block_sparse_moe.w1"}},
      {Role::kUp, {".mlp.up_proj", ".block_sparse_moe.w3"}},
      {Role::kDown, {".mlp.down_proj", ".block_sparse_moe.w2"}}};
  const auto found = names.find(target.role);
  if (target.block < 0 || target.index == kSharedExpert || found == names.end()) return {};
  const char* name = found->second[target.index >= 0 ? 1 : 0];
  return name != nullptr ? layer_name(target.block) + name : std::string();
}

Json reference_measurement_json(const ErrorMeasurement& measurement, const ModelLoader& loader) {
  const ModelSpec& spec = loader.spec();
  const bool experts = spec.blocks.front().moe.has_value();
  for (const BlockSpec& block : spec.blocks) {
    if (!is_known(block, experts)) return Json::object();
  }
  std::map<std::string, const LinearMeasurement*> measured;
  for (const LinearMeasurement& linear : measurement.linears) measured[linear.key] = &linear;
  Linears linears;
  for (const LoadTask& task : loader.load_plan().tasks) {
    const std::string name = reference_name(task.target);
    if (name.empty()) continue;
    const auto found = measured.find(task.key);
    if (found == measured.end()) return Json::object();  // it stays plain
    const auto& work = std::get<MatrixWork>(task.work);
    linears[name].push_back({found->second, !bias_of(work.matrix).view.empty()});
  }
  Json modules = Json::object();
  for (std::size_t layer = 0; layer < spec.blocks.size(); ++layer) {
    modules.update(
        block_json(layer_name(static_cast<std::int32_t>(layer)), spec.blocks[layer], linears));
  }
  // The embedding comes before the modules of the layers, the final norm and the head behind them.
  const std::size_t of_layer = spec.blocks.front().parallel ? 1 : 2;
  return {{"measurement", std::move(modules)},
          {"last_module_idx", of_layer * spec.blocks.size() + 2}};
}

}  // namespace bl
