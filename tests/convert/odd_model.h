#pragma once
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "convert/packed_tensors.h"
#include "model/arch_library.h"
#include "model/model_files.h"
#include "model/tensor_outline.h"

namespace bl::test {

// A model in memory whose weights tests can change.
class OddModel {
 public:
  static constexpr int kVocab = 100;

  // `changes`: keys of config.json beside those of a tiny Llama.
  explicit OddModel(const Json& changes) {
    config_ = {{"architectures", {"LlamaForCausalLM"}},
               {"model_type", "llama"},
               {"hidden_size", 64},
               {"intermediate_size", 128},
               {"num_hidden_layers", 2},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"head_dim", 16},
               {"vocab_size", kVocab},
               {"max_position_embeddings", 256},
               {"rms_norm_eps", 1e-6}};
    config_.update(changes);
    const HfConfig config(config_, "config.json");
    const TensorOutline outline =
        outline_tensors(build_model_spec(ArchLibrary(), config, {}), config, false);
    for (const OutlinedTable& table : outline.tables) add(table.name, {table.rows, table.width});
    for (const OutlinedLinear& linear : outline.linears) {
      add(linear.key + ".weight", {linear.out, linear.in});
      if (linear.bias) add(linear.key + ".bias", {linear.out});
    }
    for (const OutlinedNorm& norm : outline.norms) {
      add(norm.weight, {norm.width});
      fill(norm.weight, 1.0f);
    }
  }

  void fill(const std::string& name, float value) {
    for (float& one : values_.at(name)) one = value;
  }
  void set(const std::string& name, std::size_t at, float value) {
    values_.at(name).at(at) = value;
  }

  // Puts the rows of these tensors into one, in this order.
  void fuse(const std::vector<std::string>& parts, const std::string& whole) {
    TensorPlan plan{whole, DType::kF32, {0, 0}};
    std::vector<float> values;
    for (const std::string& part : parts) {
      const auto at = std::find_if(plans_.begin(), plans_.end(),
                                   [&](const TensorPlan& one) { return one.name == part; });
      plan.shape = {plan.shape[0] + at->shape[0], at->shape[1]};
      values.insert(values.end(), values_.at(part).begin(), values_.at(part).end());
      plans_.erase(at);
    }
    plans_.push_back(plan);
    values_[whole] = std::move(values);
  }
  void set_config(const std::string& key, const Json& value) { config_[key] = value; }

  ModelFiles files() const {
    std::vector<PackedTensor> tensors;
    for (const TensorPlan& plan : plans_) {
      const auto bytes = std::as_bytes(std::span(values_.at(plan.name)));
      const auto own = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
      tensors.push_back({plan, *own, own});
    }
    ModelFiles files;
    files.config = config_;
    files.source = std::make_shared<PackedSource>(std::move(tensors));
    return files;
  }

 private:
  void add(const std::string& name, const Shape& shape) {
    plans_.push_back(plan_tensor(name, DType::kF32, shape));
    std::normal_distribution<float> normal(0.0f, 0.1f);
    std::vector<float>& values = values_[name];
    for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(normal(random_));
  }

  Json config_;
  std::mt19937 random_{7};
  std::vector<TensorPlan> plans_;
  std::map<std::string, std::vector<float>> values_;
};

}  // namespace bl::test
