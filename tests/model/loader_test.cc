// Loading: what is refused before memory is taken, and what the plan says against what happens.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "backend/registry.h"
#include "base/error.h"
#include "model/golden.h"
#include "model/model_loader.h"
#include "model/renamed_source.h"
#include "support/data.h"

namespace bl::test {
namespace {

// A model's tensors with some left out or shaped otherwise.
class ChangedSource : public TensorSource {
 public:
  explicit ChangedSource(std::shared_ptr<const TensorSource> base) : base_(std::move(base)) {}
  void remove(const std::string& name) { infos_[name] = std::nullopt; }
  void reshape(const std::string& name, Shape shape) {
    TensorInfo info = *base_->find(name);
    info.shape = shape;
    infos_[name] = info;
  }
  const TensorInfo* find(std::string_view name) const override {
    const auto it = infos_.find(std::string(name));
    if (it == infos_.end()) return base_->find(name);
    return it->second ? &*it->second : nullptr;
  }
  std::vector<std::string> names() const override { return base_->names(); }
  HostArray read(std::string_view name) const override {
    HostArray array = base_->read(name);
    array.view = view_of(array.view.data, array.view.dtype, find(name)->shape);
    return array;
  }

 private:
  std::shared_ptr<const TensorSource> base_;
  std::map<std::string, std::optional<TensorInfo>> infos_;
};

struct Broken {
  explicit Broken(const std::string& name = "hf-tiny/llama")
      : files(open_model_folder(golden_folder(name.substr(0, name.find('/'))) /
                                name.substr(name.find('/') + 1))) {}

  ModelFiles files;
  std::shared_ptr<ChangedSource> source = std::make_shared<ChangedSource>(files.source);

  std::string error() {
    files.source = source;
    const auto backend = open_backend("ref", {});
    try {
      ModelLoader loader(*backend, files, {});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
};

TEST(Loader, MissingTensorIsNamed) {
  Broken norm;
  norm.source->remove("model.layers.1.input_layernorm.weight");
  EXPECT_NE(norm.error().find("model.layers.1.input_layernorm.weight"), std::string::npos);
  Broken linear;
  linear.source->remove("model.layers.1.mlp.up_proj.weight");
  EXPECT_NE(linear.error().find("model.layers.1.mlp.up_proj"), std::string::npos);
  Broken head;
  head.source->remove("lm_head.weight");
  EXPECT_NE(head.error().find("tie_word_embeddings is not true"), std::string::npos);
  Broken embed;
  embed.source->remove("model.embed_tokens.weight");
  EXPECT_NE(embed.error().find("model.embed_tokens.weight"), std::string::npos);
}

TEST(Loader, WrongShapeIsNamedWithBoth) {
  Broken norm;
  norm.source->reshape("model.norm.weight", {32});
  EXPECT_NE(norm.error().find("model.norm.weight has shape [32], must be [64]"), std::string::npos);
  Broken embed;
  embed.source->reshape("model.embed_tokens.weight", {128, 64});
  EXPECT_NE(embed.error().find("[128, 64], must be [256 or more, 64]"), std::string::npos);
  Broken linear;
  linear.source->reshape("model.layers.0.self_attn.k_proj.weight", {16, 64});
  const std::string message = linear.error();
  EXPECT_NE(message.find("k_proj"), std::string::npos) << message;
  EXPECT_NE(message.find("16"), std::string::npos) << message;
  EXPECT_NE(message.find("32"), std::string::npos) << message;
}

// Experts beside a dense feed-forward: everything that the sum of both goes through.
const std::vector<std::string> kSideBySide{"post_feedforward_layernorm_1.weight",
                                           "pre_feedforward_layernorm_2.weight",
                                           "post_feedforward_layernorm_2.weight",
                                           "router.proj.weight",
                                           "router.scale",
                                           "router.per_expert_scale",
                                           "experts.gate_up_proj",
                                           "experts.down_proj",
                                           "mlp.down_proj.weight"};

TEST(Loader, MissingTensorsOfExpertsBesideADenseLayerAreNamed) {
  for (const std::string& name : kSideBySide) {
    Broken model("archs-tiny/gemma4-moe");
    model.source->remove("model.layers.2." + name);
    const std::string error = model.error();
    const std::string wanted = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
    EXPECT_NE(error.find("model.layers.2." + wanted), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(Loader, ShapesOfARouterAreChecked) {
  Broken scale("archs-tiny/gemma4-moe");
  scale.source->reshape("model.layers.1.router.scale", {32});
  EXPECT_NE(scale.error().find("router.scale has shape [32], must be [64]"), std::string::npos)
      << scale.error();
  Broken expert("archs-tiny/gemma4-moe");
  expert.source->reshape("model.layers.1.router.per_expert_scale", {7});
  EXPECT_NE(expert.error().find("router.per_expert_scale has shape [7], must be [8]"),
            std::string::npos)
      << expert.error();
}

// Nothing that a file holds for its layers is left out of them, nor out of the plan.
TEST(Loader, ExpertsBesideADenseLayerAreAllUsedAndCounted) {
  const auto backend = open_backend("ref", {});
  const ModelFiles files = open_model_folder(golden_folder("archs-tiny") / "gemma4-moe");
  const ModelLoader loader(*backend, files, {});
  for (const std::string& name : loader.unused_tensors()) {
    EXPECT_EQ(name.find("layers"), std::string::npos) << name;
  }
  std::size_t values = 0;
  for (const std::string& name : files.source->names()) {
    if (name.starts_with("model.") || name == "lm_head.weight") {
      values += static_cast<std::size_t>(files.source->find(name)->shape.elements());
    }
  }
  // The naive backend keeps matrices and vectors as F32; the embedding stays fp16, the factor of a
  // layer's output is a number of the layer.
  const std::size_t embedding = 96 * 64;
  const std::size_t scalars = 4;
  const std::size_t ropes = RopeBank::device_bytes(*backend, loader.spec().ropes);
  // A layer without a shared expert adds its sum to zeros.
  std::size_t zeros = 0;
  for (const BlockSpec& block : loader.spec().blocks) {
    if (block.moe && !block.moe->shared) zeros += 64;
  }
  EXPECT_EQ(loader.plan({}).weights,
            (values - embedding - scalars + zeros) * 4 + embedding * 2 + ropes);
}

TEST(Loader, UnusedTensorsAreListed) {
  const auto backend = open_backend("ref", {});
  const std::filesystem::path golden = golden_folder("hf-tiny") / "llama";
  const auto unused = [&](const std::filesystem::path& folder) {
    return ModelLoader(*backend, open_model_folder(folder), {}).unused_tensors();
  };
  // A whole model.safetensors is the model; other files beside it do not count.
  EXPECT_EQ(unused(golden), std::vector<std::string>{});
  const std::filesystem::path folder = scratch_dir("unused-tensors");
  std::filesystem::copy_file(golden / "config.json", folder / "config.json");
  std::filesystem::copy_file(golden / "golden.safetensors", folder / "golden.safetensors");
  std::filesystem::copy_file(golden / "model.safetensors", folder / "part.safetensors");
  EXPECT_EQ(unused(folder), (std::vector<std::string>{"ids_0", "ids_1", "ids_2", "logits_0",
                                                      "logits_1", "logits_2"}));
  std::filesystem::remove_all(folder);
}

TEST(Loader, ProgressReachesTheEndAndMayStop) {
  const auto backend = open_backend("ref", {});
  const ModelFiles files = open_model_folder(golden_folder("hf-tiny") / "llama");
  std::size_t last = 0;
  std::size_t all = 0;
  LoadOptions options;
  options.progress = [&](std::size_t done, std::size_t total) {
    EXPECT_GE(done, last);
    last = done;
    all = total;
  };
  load_model(*backend, files, options);
  EXPECT_GT(all, 0u);
  EXPECT_EQ(last, all);
  options.progress = [](std::size_t, std::size_t) { fail(ErrorCode::kCancelled, "stopped"); };
  EXPECT_THROW(load_model(*backend, files, options), Error);
}

TEST(Loader, IdsAndPositionsOutsideTheModelAreErrors) {
  GoldenRun run("ref", golden_folder("hf-tiny") / "gpt2", CacheType::kF32);
  EXPECT_THROW(run.logits({{1, 256}}), Error);
  EXPECT_THROW(run.logits({{-1}}), Error);
  // 256 learned positions.
  EXPECT_NO_THROW(run.logits({std::vector<std::int32_t>(256, 3)}));
  EXPECT_THROW(run.logits({std::vector<std::int32_t>(257, 3)}), Error);
}

TEST(RenamedSource, RulesApplyInOrderAndOnce) {
  const std::vector<std::pair<std::string, std::string>> rules{
      {"^h.", "model.layers."}, {".attn.c_proj.", ".self_attn.o_proj."}, {".attn.", ".self_attn."}};
  EXPECT_EQ(renamed("h.0.attn.c_proj.weight", rules), "model.layers.0.self_attn.o_proj.weight");
  EXPECT_EQ(renamed("model.layers.0.self_attn.o_proj.q_weight", rules),
            "model.layers.0.self_attn.o_proj.q_weight");
  EXPECT_EQ(renamed("x.h.0", rules), "x.h.0");
}

TEST(MemoryPlan, CacheIsWholePages) {
  const std::vector<KvLayout> layers(
      2, {.type = CacheType::kF16, .kv_heads = 2, .k_dim = 64, .v_dim = 64});
  const std::size_t page = 2 * 2 * (64 + 64) * 2 * std::size_t{kPageSlots};
  EXPECT_EQ(cache_bytes(layers, 1, 1), page);
  EXPECT_EQ(cache_bytes(layers, 257, 3), 6 * page);
}

TEST(MemoryPlan, WhatLoadingTakesIsThereForTheRestAfterwards) {
  MemoryPlan plan{.weights = 1000, .cache = 10, .work = 24, .backend = 5, .loading = 100};
  EXPECT_EQ(plan.total(), 1105u);
  plan.cache = 200;
  EXPECT_EQ(plan.total(), 1229u);
  plan.driver = 7;
  EXPECT_EQ(plan.needed(), 1236u);
}

}  // namespace
}  // namespace bl::test
