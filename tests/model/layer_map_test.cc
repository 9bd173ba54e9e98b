// Layers that run again or not at all are what a model with copies of them, or without them, is.
#include "model/layer_map.h"

#include <gtest/gtest.h>

#include "backend/registry.h"
#include "base/error.h"
#include "base/file.h"
#include "format/safetensors_writer.h"
#include "model/golden.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

using Layers = std::vector<std::int32_t>;

TEST(LayerMap, Runs) {
  EXPECT_EQ(parse_layer_map("", 3), (Layers{0, 1, 2}));
  EXPECT_EQ(parse_layer_map("0..2,1..3,3,0", 4), (Layers{0, 1, 2, 1, 2, 3, 3, 0}));
  EXPECT_EQ(parse_layer_map("2", 4), Layers{2});
  for (const char* map : {"4", "-1", "0..4", "2..1", "0..", "..3", "0...3", "0-3", "a", "0,", ",0",
                          "0..1..2", " 0", "0x1", "99999999999"}) {
    try {
      parse_layer_map(map, 4);
      ADD_FAILURE() << map;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("0 … 3, such as 0..3"), std::string::npos)
          << error.what();
    }
  }
  std::string many = "0..3";
  for (int i = 0; i < 2000; ++i) many += ",0..3";
  EXPECT_THROW(parse_layer_map(many, 4), Error);
}

// A folder whose layer i is layer order[i] of another one.
fs::path copy_of_layers(const fs::path& model, const Layers& order, const std::string& scratch) {
  const ModelFiles files = open_model_folder(model);
  const std::string prefix = "model.layers.";
  std::vector<TensorPlan> plans;
  std::map<std::string, std::string> from;
  for (const std::string& name : files.source->names()) {
    const TensorInfo& info = *files.source->find(name);
    const auto add = [&](const std::string& as) {
      from[as] = name;
      plans.push_back(plan_tensor(as, info.dtype, info.shape));
    };
    if (!name.starts_with(prefix)) {
      add(name);
      continue;
    }
    const std::size_t end = name.find('.', prefix.size());
    const int layer = std::stoi(name.substr(prefix.size(), end - prefix.size()));
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (order[i] == layer) add(prefix + std::to_string(i) + name.substr(end));
    }
  }
  const fs::path folder = scratch_dir(("layer-map-" + scratch).c_str());
  SafetensorsWriter writer(folder / "model.safetensors", plans);
  for (const TensorPlan& plan : writer.tensors()) {
    const HostArray array = files.source->read(from[plan.name]);
    writer.write({static_cast<const std::byte*>(array.view.data), plan.bytes()});
  }
  writer.commit();
  Json config = files.config;
  config["num_hidden_layers"] = order.size();
  write_file_atomically(folder / "config.json", config.dump());
  return folder;
}

LoadOptions mapped(const std::string& map) {
  LoadOptions options;
  options.spec.layer_map = map;
  return options;
}

class MappedLayers : public testing::TestWithParam<const char*> {};

TEST_P(MappedLayers, AreCopies) {
  const std::string backend =
      GetParam() == std::string("cuda") ? cuda_backend() : std::string(GetParam());
  if (backend.empty()) GTEST_SKIP() << "no card here";
  for (const char* name : {"hf-tiny/llama", "hf-tiny/mixtral", "exl2-gptq/exl2-5-3"}) {
    const std::string set(name, std::string_view(name).find('/'));
    const fs::path model = golden_folder(set) / (name + set.size() + 1);
    if (!fs::exists(model)) {
      ADD_FAILURE() << "there is no " << model;
      continue;
    }
    for (const auto& [map, order] : {std::pair{"0..1,0..1,1", Layers{0, 1, 0, 1, 1}},
                                     std::pair{"1,0", Layers{1, 0}}, std::pair{"1", Layers{1}}}) {
      SCOPED_TRACE(std::string(name) + " " + map);
      GoldenRun copies(backend, copy_of_layers(model, order, GetParam()), CacheType::kF16);
      GoldenRun run(backend, model, CacheType::kF16, mapped(map));
      EXPECT_EQ(run.model().kv_layers(), static_cast<int>(order.size()));
      const auto ids = some_ids(40, run.model().vocab());
      EXPECT_EQ(run.logits({ids}), copies.logits({ids}));
      EXPECT_EQ(run.chunked_logits(ids, 7), copies.chunked_logits(ids, 7));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, MappedLayers, testing::Values("ref", "cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, MappedLayers, testing::Values("cuda"));

// What does not run is neither looked for nor counted.
TEST(LayerMap, WhatIsLeftOutIsNotLoaded) {
  const fs::path model = golden_folder("hf-tiny") / "llama";
  const auto backend = open_backend("ref", {});
  const auto weights = [&](const fs::path& folder, const char* map) {
    return ModelLoader(*backend, open_model_folder(folder), mapped(map)).weights().packed;
  };
  const std::size_t first = weights(model, "0");
  EXPECT_LT(first, weights(model, ""));
  EXPECT_EQ(weights(model, "0,0,0"), first);
  const fs::path half = copy_of_layers(model, {0}, "half");
  Json config = open_model_folder(half).config;
  config["num_hidden_layers"] = 2;
  write_file_atomically(half / "config.json", config.dump());
  EXPECT_EQ(weights(half, "0"), first);
  EXPECT_THROW(weights(half, ""), Error);
}

}  // namespace
}  // namespace bl::test
