// Logits of a tiny random model with adapters, alone and mixed, against those of transformers with
// PEFT.

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "format/safetensors_folder.h"
#include "model/golden.h"
#include "model/kept_run.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::map<std::string, float> mix;
  std::vector<GoldenPrompt> prompts;
};

std::vector<Case> cases() {
  const fs::path folder = golden_folder("lora-llama");
  const SafetensorsFolder source(folder / "golden.safetensors");
  std::vector<Case> cases;
  for (const Json& mix : read_json_file(folder / "mixes.json")) {
    Case one{mix.get<std::map<std::string, float>>(), {}};
    for (int i = 0; source.find("ids_" + std::to_string(i)) != nullptr; ++i) {
      const auto ids = values_of<std::int64_t>(source, "ids_" + std::to_string(i));
      const std::string name = fmt::format("logits_{}_{}", cases.size(), i);
      one.prompts.push_back({{ids.begin(), ids.end()}, values_of<float>(source, name)});
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

// The model with all adapters of the goldens in its memory.
class AdapterRun {
 public:
  AdapterRun(const std::string& backend, CacheType cache)
      : run_(backend, golden_folder("hf-tiny") / "llama", cache) {
    for (const auto& entry : fs::directory_iterator(golden_folder("lora-llama"))) {
      if (!entry.is_directory()) continue;
      adapters_[entry.path().filename().string()] =
          run_.prepare_adapter(entry.path()).pack(run_.backend());
    }
  }
  GoldenRun& run() { return run_; }
  AdapterMix mix_of(const Case& one) const {
    AdapterMix mix;
    for (const auto& [name, weight] : one.mix) mix.push_back({adapters_.at(name), weight});
    return mix;
  }

 private:
  GoldenRun run_;
  std::map<std::string, std::shared_ptr<const LoraAdapter>> adapters_;
};

void expect_close(const std::vector<float>& logits, const std::vector<float>& golden,
                  double tolerance) {
  ASSERT_EQ(logits.size(), golden.size());
  EXPECT_LE(largest_difference(logits, golden), tolerance * std::max(1.0, deviation(golden)));
}

// Each mix alone, then all of them with all prompts in one step, and once without any.
void check_backend(const std::string& backend, CacheType cache, double tolerance) {
  AdapterRun run(backend, cache);
  const std::vector<Case> all = cases();
  ASSERT_EQ(all.size(), 6u);
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<AdapterMix> mixes;
  std::vector<const GoldenPrompt*> expected;
  for (const Case& one : all) {
    ASSERT_EQ(one.prompts.size(), 3u);
    for (const GoldenPrompt& prompt : one.prompts) {
      expect_close(run.run().logits({prompt.ids}, {run.mix_of(one)})[0], prompt.logits, tolerance);
      prompts.push_back(prompt.ids);
      mixes.push_back(run.mix_of(one));
      expected.push_back(&prompt);
    }
    prompts.push_back(one.prompts[0].ids);  // in between: one without adapters
    mixes.push_back({});
    expected.push_back(nullptr);
  }
  const std::vector<float> without = run.run().logits({all[0].prompts[0].ids})[0];
  const auto together = run.run().logits(prompts, mixes);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (expected[i] != nullptr) {
      expect_close(together[i], expected[i]->logits, tolerance);
    } else {
      expect_close(together[i], without, tolerance);
    }
  }
}

TEST(LoraGolden, RefEqualsPeft) { check_backend("ref", CacheType::kF32, 1e-3); }

TEST(LoraGolden, CpuEqualsPeft) { check_backend("cpu", CacheType::kF16, 2e-2); }

TEST(LoraGolden, CudaEqualsPeft) {
  if (cuda_backend().empty()) GTEST_SKIP() << "no CUDA device here";
  check_backend(cuda_backend(), CacheType::kF16, 2e-2);
}

// On host backends what a row gets does not depend, to the last bit, on its neighbours or on how
// its text was cut.
TEST(LoraGolden, BatchAndChunksEqualSingle) {
  for (const char* backend : {"ref", "cpu"}) {
    AdapterRun run(backend, CacheType::kF32);
    std::vector<std::vector<std::int32_t>> prompts;
    std::vector<AdapterMix> mixes;
    for (const Case& one : cases()) {
      for (const GoldenPrompt& prompt : one.prompts) {
        prompts.push_back(prompt.ids);
        mixes.push_back(run.mix_of(one));
      }
    }
    prompts.push_back(prompts[0]);
    mixes.emplace_back();
    const auto together = run.run().logits(prompts, mixes);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::vector<float> alone = run.run().logits({prompts[i]}, {mixes[i]})[0];
      EXPECT_EQ(largest_difference(together[i], alone), 0.0) << backend << ", prompt " << i;
      for (const std::int32_t chunk : {1, 7}) {
        EXPECT_EQ(largest_difference(run.run().chunked_logits(prompts[i], chunk, &mixes[i]), alone),
                  0.0)
            << backend << ", prompt " << i << ", chunks of " << chunk;
      }
      // Adapters of the last row alone, behind steps of which nothing is wanted.
      const auto end = static_cast<std::int32_t>(prompts[i].size()) - 1;
      const std::vector<float> last = run.run().chunked_logits(
          prompts[i], 7, &mixes[i], [&](std::int32_t position) { return position == end; });
      const auto vocab = run.run().model().vocab();
      ASSERT_EQ(std::ssize(last), vocab);
      EXPECT_EQ(largest_difference(last, {alone.end() - vocab, alone.end()}), 0.0) << backend;
    }
    // And a sequence without adapters is what it is in a step where nobody has any.
    EXPECT_EQ(largest_difference(together.back(), run.run().logits({prompts[0]})[0]), 0.0);
  }
}

// Of a prompt's step only wanted rows are queries in the last block: these have the adapters of
// their sequences, and so have the keys of all.
TEST(LoraGolden, FewWantedRowsEqualThoseOfAll) {
  for (const char* backend : {"ref", "cpu"}) {
    AdapterRun run(backend, CacheType::kF32);
    std::vector<AdapterMix> mixes;
    for (const Case& one : cases()) mixes.push_back(run.mix_of(one));
    const auto ids = [&](std::int64_t length) {
      return some_ids(length, run.run().model().vocab());
    };
    std::vector<KeptText> texts{{ids(30), 0, {29}, nullptr}};
    for (const AdapterMix& mix : mixes) {
      texts.push_back({ids(80), 10, {79}, &mix});
      texts.push_back({ids(20), 0, {}, &mix});
      texts.push_back({ids(70), 3, {50, 51}, &mix});
    }
    const std::int64_t rows =
        expect_kept_equals_all(run.run().backend(), run.run().model(), CacheType::kF32, texts);
    if (backend != std::string("ref")) continue;
    EXPECT_EQ(rows, 1 + 3 * std::ssize(mixes));
  }
}

}  // namespace
}  // namespace bl::test
