// Folding adapters into weights, and computing with them, are two ways to the same logits: on every
// architecture's tiny model, plain and quantized, with adapters on everything that takes them,
// under every name it has.

#include <gtest/gtest.h>

#include <set>

#include "backend/registry.h"
#include "base/error.h"
#include "base/file.h"
#include "model/adapter_files.h"
#include "model/golden.h"
#include "model/lora_merge.h"
#include "support/data.h"
#include "support/error_of.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

// Adapters on every column of the model exactly once: by the names of its files, or (`other`) by
// the other names that the same columns have, fused where the files are not and the other way
// round.
AdapterFiles adapters_everywhere(const AdapterSites& sites, bool other, bool embedding) {
  AdapterFiles files;
  std::set<std::pair<std::int32_t, std::int64_t>> taken;  // linear, column
  const auto covers = [&](const AdapterSite& site) {
    for (const AdapterPart& part : site.parts) {
      if (taken.contains({part.linear, part.first_column})) return true;
    }
    return false;
  };
  const auto add = [&](const std::string& name, const AdapterSite& site) {
    if (!site.refusal.empty()) return;
    if (site.is_embedding) {
      if (embedding) files.add_embedding(name, {site.in, site.out});
      return;
    }
    if (covers(site)) return;
    files.add(name, {site.in, site.out}, taken.size() % 2 == 0 ? DType::kF32 : DType::kBF16);
    for (const AdapterPart& part : site.parts) {
      for (std::int64_t i = 0; i < part.count; ++i) {
        taken.insert({part.linear, part.first_column + i});
      }
    }
  };
  const auto is_own = [&](const std::string& name, const AdapterSite& site) {
    return !site.parts.empty() && sites.origin(site.parts[0].linear).module == name;
  };
  for (const auto& [name, site] : sites.all()) {
    if (is_own(name, site) != other) add(name, site);
  }
  for (const auto& [name, site] : sites.all()) add(name, site);
  return files;
}

struct Compared {
  double largest = 0;  // difference, in deviations of the logits
  double median = 0;
  double effect = 0;  // of the adapter
};

Compared compare(const fs::path& folder, const AdapterFiles& files, const std::string& backend) {
  const fs::path adapter = scratch_dir("merge-adapter");
  files.write(adapter);
  GoldenRun run(backend, folder, CacheType::kF32);
  const AdapterMix mix{{run.prepare_adapter(adapter).pack(run.backend()), 0.75f}};
  const ModelFiles base = open_model_folder(folder);
  const fs::path merged_folder = scratch_dir("merged");
  merge_lora(run.backend(), {.base = base, .adapters = {{adapter, 0.75}}, .folder = merged_folder});
  GoldenRun merged(backend, merged_folder, CacheType::kF32);
  const std::vector<std::int32_t> ids = some_ids(20, run.model().vocab());
  const std::vector<float> with = run.logits({ids}, {mix})[0];
  const std::vector<float> expected = merged.logits({ids})[0];
  const double unit = std::max(1e-6, deviation(expected));
  return {largest_difference(with, expected) / unit, median_difference(with, expected) / unit,
          largest_difference(run.logits({ids})[0], expected) / unit};
}

class LoraMerge : public testing::TestWithParam<std::string> {};

// Weights are rounded to the type of the file after the sum, so it is not exact: routing may tip,
// and random quantized models amplify rounding.
TEST_P(LoraMerge, EqualsComputingWithTheAdapter) {
  const fs::path folder = model_folder(GetParam());
  const auto backend = open_backend("ref", {});
  const ModelLoader loader(*backend, open_model_folder(folder), {});
  for (const bool other : {false, true}) {
    const AdapterFiles files = adapters_everywhere(loader.adapter_sites(), other, true);
    ASSERT_GE(files.tensors.size(), 4u);
    const Compared compared = compare(folder, files, "ref");
    const bool steady = GetParam().starts_with("hf-tiny");
    EXPECT_LE(steady ? compared.largest : 0.0, 0.05) << (other ? "other names" : "names of files");
    EXPECT_LE(compared.median, 0.03) << (other ? "other names" : "names of files");
    EXPECT_GE(compared.effect, 0.2);
  }
}

INSTANTIATE_TEST_SUITE_P(Model, LoraMerge,
                         testing::ValuesIn(sampled_golden_models({"hf-tiny", "archs-tiny",
                                                                  "exl2-gptq"})),
                         [](const auto& info) { return case_name(info.param); });

TEST(LoraMergeTest, AWeightThatItsTypeCannotHoldIsSaid) {
  for (const char* name : {"exl2-gptq/exl2-4bit", "hf-tiny/gpt2"}) {
    const fs::path folder = model_folder(name);
    const auto backend = open_backend("ref", {});
    const ModelFiles base = open_model_folder(folder);
    const ModelLoader loader(*backend, base, {});
    const fs::path adapter = scratch_dir("merge-huge");
    adapters_everywhere(loader.adapter_sites(), false, true).write(adapter);
    const fs::path merged = scratch_dir("merged-huge");
    const double weight = std::string(name).starts_with("hf") ? 1e38 : 1e9;
    const std::string error = error_of(
        [&] {
          merge_lora(*backend, {.base = base, .adapters = {{adapter, weight}}, .folder = merged});
        },
        ErrorCode::kInvalidArgument);
    EXPECT_NE(error.find("beyond what"), std::string::npos) << error;
  }
}

// A head that shares the embedding is parted from it, and only where an adapter touches one of
// them.
TEST(LoraMergeTest, TiedHeads) {
  const fs::path folder = golden_folder("hf-tiny") / "llama-tied-headdim";
  AdapterFiles files;
  files.add("lm_head", {64, 256});
  const Compared head = compare(folder, files, "ref");
  EXPECT_LE(head.largest, 1e-2);
  EXPECT_GE(head.effect, 0.1);
  files.tensors.clear();
  files.add_embedding("model.embed_tokens", {256, 64});
  EXPECT_LE(compare(folder, files, "ref").largest, 1e-2);

  files.tensors.clear();
  files.add("model.layers.0.self_attn.q_proj", {64, 128});
  const fs::path adapter = scratch_dir("tied-adapter");
  files.write(adapter);
  const fs::path merged = scratch_dir("tied-merged");
  const auto backend = open_backend("ref", {});
  const ModelFiles base = open_model_folder(folder);
  const LoraMergeResult result =
      merge_lora(*backend, {.base = base, .adapters = {{adapter, 1.0}}, .folder = merged});
  EXPECT_EQ(result.changed, 1);
  EXPECT_EQ(open_model_folder(merged).source->find("lm_head.weight"), nullptr);
}

// An embedding or a head of the adapter's own stands for 3/4 of the model's, what low ranks add
// comes on top of it, and in no other place.
TEST(LoraMergeTest, WholeModules) {
  for (const char* name : {"hf-tiny/llama", "hf-tiny/llama-tied-headdim", "exl2-gptq/exl2-4bit"}) {
    const fs::path folder = model_folder(name);
    const auto backend = open_backend("ref", {});
    const ModelLoader loader(*backend, open_model_folder(folder), {});
    const std::int64_t hidden = loader.spec().hidden;
    const std::int64_t vocab = loader.spec().vocab;
    for (const auto& modules : std::vector<std::vector<std::string>>{
             {"lm_head"}, {"model.embed_tokens"}, {"lm_head", "model.embed_tokens"}}) {
      AdapterFiles files;
      for (const std::string& module : modules) files.add_whole(module, {vocab, hidden});
      files.add("model.layers.0.self_attn.o_proj",
                {loader.adapter_sites().find("model.layers.0.self_attn.o_proj")->in, hidden});
      const Compared plain = compare(folder, files, "ref");
      EXPECT_LE(plain.median, 0.01) << name << ", " << modules[0];
      EXPECT_GE(plain.effect, 0.3) << name << ", " << modules[0];
      for (const std::string& other : {std::string("cpu"), cuda_backend()}) {
        if (other.empty()) continue;  // no CUDA device here
        EXPECT_LE(compare(folder, files, other).median, 0.03) << name << ", " << modules[0];
      }
      if (modules[0] == "lm_head") files.add("lm_head", {hidden, vocab});
      EXPECT_LE(compare(folder, files, "ref").median, 0.01) << name << ", " << modules[0];
    }
  }
}

std::vector<float> logits_with(GoldenRun& run, const AdapterFiles& files, float weight) {
  const fs::path adapter = scratch_dir("whole-adapter");
  files.write(adapter);
  return run.logits({some_ids(20, run.model().vocab())},
                    {{{run.prepare_adapter(adapter).pack(run.backend()), weight}}})[0];
}

// The same bytes as binary16 and as bfloat16 are other weights, and pages made with them others.
TEST(LoraMergeTest, FingerprintsKnowTypes) {
  GoldenRun run("ref", golden_folder("hf-tiny") / "llama-tied-headdim", CacheType::kF32);
  const Shape shape{256, 64};
  std::vector<std::string> prints;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    AdapterFiles files;
    files.add_whole("model.embed_tokens", shape);
    AdapterTensor& tensor = files.tensors.begin()->second;
    tensor.dtype = dtype;
    // Both are 0x3c00.
    std::fill(tensor.values.begin(), tensor.values.end(), dtype == DType::kF16 ? 1 : 0.0078125f);
    const fs::path adapter = scratch_dir("print-adapter");
    files.write(adapter);
    prints.push_back(run.prepare_adapter(adapter).fingerprint());
  }
  EXPECT_NE(prints[0], prints[1]);
}

// As PEFT has it: a copy of the embedding that was trained leaves a tied head as it was; the
// model's own embedding, saved because it changed, is the head, too.
TEST(LoraMergeTest, WholeEmbeddingsOfTiedHeads) {
  GoldenRun run("ref", golden_folder("hf-tiny") / "llama-tied-headdim", CacheType::kF32);
  const Shape shape{256, 64};
  AdapterFiles named, own, both;
  named.add_whole("model.embed_tokens", shape);
  own.add_whole("model.embed_tokens", shape, false);
  both.add_whole("model.embed_tokens", shape);
  both.add_whole("lm_head", shape);
  both.tensors["base_model.model.lm_head.weight"] =
      both.tensors.at("base_model.model.model.embed_tokens.weight");
  const std::vector<float> expected = logits_with(run, both, 1);
  EXPECT_EQ(logits_with(run, own, 1), expected);
  EXPECT_NE(logits_with(run, named, 1), expected);
}

}  // namespace
}  // namespace bl::test
