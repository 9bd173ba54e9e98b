// Modules that come from another model's files.
#include "model/overridden_source.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/golden.h"

namespace bl::test {
namespace {

// Tensors without elements; their file says whose they are.
class Names : public TensorSource {
 public:
  Names(const char* file, std::vector<std::string> names) {
    for (std::string& name : names) infos_[std::move(name)] = {DType::kF32, {0}, file};
  }
  const TensorInfo* find(std::string_view name) const override {
    const auto it = infos_.find(name);
    return it == infos_.end() ? nullptr : &it->second;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, info] : infos_) names.push_back(name);
    return names;
  }
  HostArray read(std::string_view) const override { return {}; }

 private:
  std::map<std::string, TensorInfo, std::less<>> infos_;
};

std::shared_ptr<Names> base() {
  return std::make_shared<Names>(
      "base", std::vector<std::string>{"head.weight", "l.0.q.weight", "l.0.up.q_scale",
                                       "l.0.up.q_weight", "l.1.q.weight"});
}
std::shared_ptr<Names> other() {
  return std::make_shared<Names>(
      "other",
      std::vector<std::string>{"l.0.q.q_weight", "l.0.up.weight", "l.1.q.weight", "l.2.q.weight"});
}

TEST(OverriddenSource, TakesWholeModules) {
  const OverriddenSource source(base(), {{"l.0.*", other(), "OTHER"}});
  EXPECT_EQ(source.names(), (std::vector<std::string>{"head.weight", "l.0.q.q_weight",
                                                      "l.0.up.weight", "l.1.q.weight"}));
  EXPECT_EQ(source.find("l.0.q.q_weight")->file, "other");
  EXPECT_EQ(source.find("l.0.q.weight"), nullptr);  // of the module as it was
  EXPECT_EQ(source.find("l.0.up.q_scale"), nullptr);
  EXPECT_EQ(source.find("l.1.q.weight")->file, "base");
  EXPECT_EQ(source.find("l.2.q.weight"), nullptr);
}

TEST(OverriddenSource, WhatTheModelHasNotStaysOutAndTheLastWins) {
  const auto third = std::make_shared<Names>("third", std::vector<std::string>{"l.0.q.weight"});
  const OverriddenSource source(base(), {{"*", other(), "OTHER"}, {"*.q", third, "THIRD"}});
  EXPECT_EQ(source.names(), (std::vector<std::string>{"head.weight", "l.0.q.weight",
                                                      "l.0.up.weight", "l.1.q.weight"}));
  EXPECT_EQ(source.find("l.0.q.weight")->file, "third");
  EXPECT_EQ(source.find("l.1.q.weight")->file, "other");
  EXPECT_EQ(source.find("l.2.q.weight"), nullptr);
}

TEST(OverriddenSource, APatternThatFitsNothingIsAnError) {
  for (const char* pattern : {"l.0.Q", "l.2.*", "head", "", "l.0.q.weight", "["}) {
    try {
      OverriddenSource(base(), {{"*.up", other(), "OTHER"}, {pattern, other(), "OTHER"}});
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("OTHER have; names are such as l.0.q"),
                std::string::npos)
          << error.what();
    }
  }
}

// Matrices of other widths, and of GPTQ, in a model of EXL2: as if each had its logits' share.
TEST(OverriddenSource, FormatsMix) {
  const auto folder = golden_folder("exl2-gptq");
  const auto open = [&](const char* name) { return open_model_folder(folder / name); };
  const auto run = [&](const char* pattern, const char* from) {
    ModelFiles files = open("exl2-4bit");
    if (pattern != nullptr) {
      const ModelFiles second = open(from);
      files.source = std::make_shared<OverriddenSource>(
          files.source, std::vector<TensorOverride>{{pattern, second.source, from}});
      files.gptq = second.gptq;
    }
    return GoldenRun("ref", std::move(files), CacheType::kF32).logits({some_ids(20, 64)});
  };
  const auto own = run(nullptr, nullptr);
  EXPECT_EQ(run("*", "exl2-4bit"), own);
  const auto mixed = run("model.layers.1.mlp.*", "exl2-5-3");
  EXPECT_NE(mixed, own);
  EXPECT_NE(run("model.layers.0.self_attn.q_proj", "gptq-4bit-g128"), own);
  // All of another one's modules are the other model.
  const auto second =
      GoldenRun("ref", open("exl2-5-3"), CacheType::kF32).logits({some_ids(20, 64)});
  EXPECT_EQ(run("*", "exl2-5-3"), second);
  EXPECT_NE(mixed, second);
}

}  // namespace
}  // namespace bl::test
