// Checkpoints whose tensors have other prefixes than the model class writes, as exports of a model
// without its head and text models out of multimodal ones have them.

#include "model/checkpoint_names.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/registry.h"
#include "base/error.h"
#include "model/arch_library.h"
#include "model/golden.h"
#include "model/renamed_source.h"
#include "support/error_of.h"

namespace bl::test {
namespace {

using Planned = decltype(LoadPlan::tensors);
using Change = std::function<std::string(const std::string& name)>;

// A model's tensors under changed names.
class ChangedSource : public TensorSource {
 public:
  ChangedSource(std::shared_ptr<const TensorSource> base, const Change& change)
      : base_(std::move(base)) {
    for (const std::string& name : base_->names()) originals_[change(name)] = name;
  }
  const TensorInfo* find(std::string_view name) const override {
    const auto it = originals_.find(name);
    return it == originals_.end() ? nullptr : base_->find(it->second);
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, original] : originals_) names.push_back(name);
    return names;
  }
  HostArray read(std::string_view name) const override {
    return base_->read(originals_.find(name)->second);
  }

 private:
  std::shared_ptr<const TensorSource> base_;
  std::map<std::string, std::string, std::less<>> originals_;
};

std::string without(const std::string& prefix, const std::string& name) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

ModelFiles changed(ModelFiles files, const Change& change) {
  files.source = std::make_shared<ChangedSource>(files.source, change);
  return files;
}

class NamesOfCheckpoints : public testing::TestWithParam<std::string> {
 protected:
  ModelFiles files() const { return open_model_folder(model_folder(GetParam())); }
  Planned planned(const ModelFiles& files) const {
    return ModelLoader(*backend_, files, {}).load_plan().tensors;
  }
  std::string base() const { return ModelLoader(*backend_, files(), {}).spec().arch->base + "."; }
  std::unique_ptr<Backend> backend_ = open_backend("ref", {});
};

TEST_P(NamesOfCheckpoints, LeadToTheModelWithAnyPrefix) {
  const std::string base = this->base();
  const Planned expected = planned(files());
  const auto is_head = [](const std::string& name) {
    return name.find("lm_head") != name.npos || name.starts_with("output.") ||
           name.starts_with("embed_out.");
  };
  const std::map<std::string, Change> changes = {
      {"bare", [&](const std::string& name) { return without(base, name); }},
      {"headed",
       [&](const std::string& name) {
         return is_head(name) || name.starts_with(base) ? name : base + name;
       }},
      {"in a multimodal model",
       [&](const std::string& name) {
         return is_head(name) ? name : "model.language_model." + without(base, name);
       }},
      {"in an older multimodal model", [&](const std::string& name) {
         return "language_model." + (is_head(name) ? name : base + without(base, name));
       }}};
  for (const auto& [what, change] : changes) {
    SCOPED_TRACE(what);
    EXPECT_EQ(planned(changed(files(), change)), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, NamesOfCheckpoints,
                         testing::ValuesIn(sampled_golden_models({"hf-tiny", "archs-tiny",
                                                                  "exl2-gptq"})),
                         [](const auto& info) { return case_name(info.param); });

// The name that is the architecture's own wins over one that is changed into it.
TEST(CheckpointNames, NearestNameWins) {
  ArchSpec arch;
  arch.base = "model";
  arch.embed = {"model.embed_tokens"};
  arch.head = {"lm_head"};
  arch.layer = "model.layers.{i}";
  arch.rename = {{"^h.", "model.layers."}};
  const CheckpointNames names(arch);
  using Distance = CheckpointNames::Distance;
  const auto expect = [&](const char* from, const char* to, Distance distance) {
    const CheckpointNames::Known known = names.known_as(from);
    EXPECT_EQ(known.name, to) << from;
    EXPECT_EQ(known.distance, distance) << from;
  };
  expect("model.layers.3.norm.weight", "model.layers.3.norm.weight", Distance::kSame);
  expect("h.3.norm.weight", "model.layers.3.norm.weight", Distance::kRenamed);
  expect("layers.3.norm.weight", "model.layers.3.norm.weight", Distance::kPrefix);
  expect("language_model.lm_head.weight", "lm_head.weight", Distance::kPrefix);
  // These belong to other parts of a model, whose names only look alike.
  for (const char* other : {"vision_tower.layers.0.weight", "layers.norm.weight", "score.weight",
                            "model.visual.layers.0.weight", "embed_tokens_extra.weight"}) {
    expect(other, other, Distance::kSame);
  }
}

TEST(CheckpointNames, AHeadThatIsMissingIsNamed) {
  const auto backend = open_backend("ref", {});
  ModelFiles files = open_model_folder(model_folder("hf-tiny/llama"));
  files.config["tie_word_embeddings"] = false;
  files = changed(files, [](const std::string& name) {
    return name.starts_with("lm_head.") ? "score.weight" : without("model.", name);
  });
  const std::string message =
      error_of([&] { ModelLoader(*backend, files, {}); }, ErrorCode::kNotFound);
  EXPECT_NE(message.find("no output head lm_head.weight"), std::string::npos) << message;
}

}  // namespace
}  // namespace bl::test
