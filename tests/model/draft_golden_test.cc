// Guesses of tiny random drafters against those of an oracle
// (tools/make_draft_goldens.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "base/json.h"
#include "cache/kv_cache.h"
#include "cache/page_table.h"
#include "format/safetensors_folder.h"
#include "model/golden.h"
#include "model/kept_run.h"
#include "support/error_of.h"

namespace bl::test {
namespace {

using Ids = std::vector<std::int32_t>;

// What the drafters in the archive are for.
struct DraftCase {
  const char* name;
  const char* target;
};
constexpr DraftCase kFull{"full", "qwen3"};
constexpr DraftCase kSliding{"sliding", "llama"};
constexpr DraftCase kLaguna{"laguna", "llama"};
constexpr DraftCase kCases[] = {kFull, kSliding, kLaguna};

std::filesystem::path folder_of(const DraftCase& draft) {
  return golden_folder("draft-tiny") / draft.name;
}
std::filesystem::path target_of(const DraftCase& draft) {
  return golden_folder("hf-tiny") / draft.target;
}

// One text on a backend, read by a model with side layers.
struct DraftText {
  explicit DraftText(KvCache& cache) : table(cache.pool()) {}
  PageTable table;
  std::int32_t read = 0;
};

class DraftRun {
 public:
  DraftRun(const std::string& backend, const DraftCase& draft, CacheType type)
      : backend_(open_backend(backend, {})) {
    LoadOptions options;
    options.draft = open_model_folder(folder_of(draft));
    model_ = load_model(*backend_, open_model_folder(target_of(draft)), options);
    cache_ = std::make_unique<KvCache>(*backend_, model_->kv_layouts(type), 16);
    scratch_ = Arena(backend_->allocate(model_->work_bytes(256, 256)));
  }
  DraftText text() { return DraftText(*cache_); }
  std::int64_t stretch() const { return model_->draft_head()->spec().stretch; }

  // The model reads ids[text.read, end); logits of all of them.
  std::vector<float> read(DraftText& text, const Ids& ids, std::int32_t end) {
    StepBatch batch;
    add(text, text.read, {ids.begin() + text.read, ids.begin() + end}, batch);
    for (std::int32_t i = text.read; i < end; ++i) batch.logit_rows.push_back(i - text.read);
    text.read = end;
    return run([&](ExecContext& ctx) { return model_->forward(ctx, batch, cache_->layers()); });
  }
  // Of guesses behind texts whose last ids are these: [texts · (stretch − 1), vocab].
  std::vector<float> guess(const std::vector<DraftText*>& texts, const Ids& last) {
    StepBatch batch;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      Ids ids(static_cast<std::size_t>(stretch()), model_->draft_head()->spec().mask);
      ids.front() = last[i];
      const auto first = static_cast<std::int32_t>(batch.ids.size());
      for (std::int32_t row = 1; row < stretch(); ++row) batch.logit_rows.push_back(first + row);
      add(*texts[i], texts[i]->read, ids, batch);
    }
    return run([&](ExecContext& ctx) { return model_->draft(ctx, batch, cache_->layers()); });
  }
  // Behind a whole text, read in steps of so many tokens.
  std::vector<float> guess_behind(const Ids& ids, std::int32_t chunk) {
    DraftText whole = text();
    const auto end = static_cast<std::int32_t>(ids.size()) - 1;
    while (whole.read < end) read(whole, ids, std::min(whole.read + chunk, end));
    return guess({&whole}, {ids.back()});
  }
  std::size_t vocab() const { return static_cast<std::size_t>(model_->vocab()); }

 private:
  void add(DraftText& text, std::int32_t past, const Ids& ids, StepBatch& batch) {
    const auto count = static_cast<std::int32_t>(ids.size());
    BL_CHECK(text.table.reserve(past + count));
    BatchSequence sequence;
    sequence.first_token = static_cast<std::int32_t>(batch.ids.size());
    sequence.tokens = count;
    sequence.past = past;
    sequence.pages.assign(text.table.pages().begin(), text.table.pages().end());
    sequence.reach = 512;
    for (std::int32_t i = 0; i < count; ++i) {
      batch.ids.push_back(ids[static_cast<std::size_t>(i)]);
      batch.positions.push_back(past + i);
      batch.slots.push_back(text.table.slot(past + i));
    }
    batch.sequences.push_back(std::move(sequence));
  }
  template <class Step>
  std::vector<float> run(Step&& step) {
    ArenaScope scope(scratch_);
    ExecContext ctx = backend_->context(scratch_);
    const TensorView logits = step(ctx);
    Tensor host = make_host_tensor(DType::kF32, logits.shape);
    backend_->download(host.view(), logits);
    const float* first = host.view().as<float>();
    return {first, first + host.view().shape.elements()};
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  Arena scratch_;
};

// What the oracle says of one prompt.
struct DraftGolden {
  Ids prompt;
  std::vector<float> logits;  // [stretch − 1, vocab] behind it
  std::vector<std::int64_t> starts, guesses;
  Ids text;
};

std::vector<DraftGolden> goldens_of(const DraftCase& draft) {
  const SafetensorsFolder source(folder_of(draft) / "golden.safetensors");
  const Golden target(target_of(draft));
  std::vector<DraftGolden> goldens;
  for (const GoldenPrompt& prompt : target.prompts()) {
    const std::string number = std::to_string(goldens.size());
    const auto text = values_of<std::int64_t>(source, "text_" + number);
    goldens.push_back({prompt.ids,
                       values_of<float>(source, "logits_" + number),
                       values_of<std::int64_t>(source, "starts_" + number),
                       values_of<std::int64_t>(source, "guesses_" + number),
                       {text.begin(), text.end()}});
  }
  return goldens;
}

Ids likeliest(const std::vector<float>& logits, std::size_t vocab) {
  Ids ids;
  for (auto row = logits.begin(); row != logits.end(); row += static_cast<std::ptrdiff_t>(vocab)) {
    const auto end = row + static_cast<std::ptrdiff_t>(vocab);
    ids.push_back(static_cast<std::int32_t>(std::max_element(row, end) - row));
  }
  return ids;
}

void compare(const std::string& backend, CacheType type, double tolerance) {
  for (const DraftCase& draft : kCases) {
    SCOPED_TRACE(draft.name);
    DraftRun run(backend, draft, type);
    for (const DraftGolden& golden : goldens_of(draft)) {
      for (const std::int32_t chunk : {256, 7, 1}) {
        const std::vector<float> logits = run.guess_behind(golden.prompt, chunk);
        ASSERT_EQ(logits.size(), golden.logits.size());
        EXPECT_LE(largest_difference(logits, golden.logits),
                  tolerance * std::max(1.0, deviation(golden.logits)))
            << golden.prompt.size() << " tokens in steps of " << chunk;
      }
    }
  }
}

TEST(DraftGoldens, RefEqualsTheOracle) { compare("ref", CacheType::kF32, 1e-3); }
TEST(DraftGoldens, CpuEqualsTheOracle) { compare("cpu", CacheType::kF16, 2e-2); }
TEST(DraftGoldens, CudaEqualsTheOracle) {
  if (cuda_backend().empty()) GTEST_SKIP() << "no CUDA device here";
  compare(cuda_backend(), CacheType::kF16, 2e-2);
}

// Guesses and verified rows write into the same slots, again and again.
TEST(DraftGoldens, RoundsEqualTheOracles) {
  for (const DraftCase& draft : kCases) {
    for (const char* backend : {"ref", "cpu"}) {
      SCOPED_TRACE(std::string(draft.name) + " on " + backend);
      DraftRun run(backend, draft, CacheType::kF32);
      for (const DraftGolden& golden : goldens_of(draft)) {
        DraftText text = run.text();
        run.read(text, golden.text, static_cast<std::int32_t>(golden.prompt.size()));
        const auto each = static_cast<std::size_t>(run.stretch() - 1);
        for (std::size_t round = 0; round < golden.starts.size(); ++round) {
          const auto start = static_cast<std::int32_t>(golden.starts[round]);
          if (text.read < start) run.read(text, golden.text, start);
          text.read = start;
          const Ids guesses = likeliest(
              run.guess({&text}, {golden.text[static_cast<std::size_t>(start)]}), run.vocab());
          const auto expected = golden.guesses.begin() + static_cast<std::ptrdiff_t>(round * each);
          EXPECT_EQ(guesses, Ids(expected, expected + static_cast<std::ptrdiff_t>(each)))
              << "round " << round;
          // The model verifies them: what is wrong is written over later.
          Ids verified(golden.text.begin(), golden.text.begin() + start + 1);
          verified.insert(verified.end(), guesses.begin(), guesses.end());
          run.read(text, verified, static_cast<std::int32_t>(verified.size()));
        }
      }
    }
  }
}

TEST(DraftGoldens, BatchEqualsSingle) {
  for (const DraftCase& draft : kCases) {
    for (const char* backend : {"ref", "cpu"}) {
      SCOPED_TRACE(std::string(draft.name) + " on " + backend);
      DraftRun run(backend, draft, CacheType::kF16);
      std::vector<float> alone;
      std::vector<DraftText> texts;
      std::vector<DraftText*> together;
      Ids last;
      for (const DraftGolden& golden : goldens_of(draft)) {
        const std::vector<float> logits = run.guess_behind(golden.prompt, 256);
        alone.insert(alone.end(), logits.begin(), logits.end());
        texts.push_back(run.text());
        run.read(texts.back(), golden.prompt, static_cast<std::int32_t>(golden.prompt.size()) - 1);
        last.push_back(golden.prompt.back());
      }
      for (DraftText& text : texts) together.push_back(&text);
      EXPECT_EQ(largest_difference(run.guess(together, last), alone), 0.0);
    }
  }
}

// Where a layer is read, all of its rows are computed; what the model says stays the same.
TEST(DraftGoldens, TheModelSaysWhatItSaysWithoutThem) {
  for (const DraftCase& draft : kCases) {
    for (const char* backend : {"ref", "cpu"}) {
      DraftRun run(backend, draft, CacheType::kF16);
      GoldenRun plain(backend, target_of(draft), CacheType::kF16);
      for (const DraftGolden& golden : goldens_of(draft)) {
        DraftText text = run.text();
        const auto length = static_cast<std::int32_t>(golden.prompt.size());
        EXPECT_EQ(largest_difference(run.read(text, golden.prompt, length),
                                     plain.chunked_logits(golden.prompt, 256)),
                  0.0)
            << draft.name << " on " << backend;
      }
    }
  }
}

// Keys and values of side layers as well; where the last block is read, all of its rows are
// queries.
TEST(DraftGoldens, FewWantedRowsOfAPromptEqualThoseOfAll) {
  for (const DraftCase& draft : kCases) {
    for (const char* name : {"ref", "cpu"}) {
      SCOPED_TRACE(std::string(draft.name) + " on " + name);
      const auto backend = open_backend(name, {});
      LoadOptions options;
      options.draft = open_model_folder(folder_of(draft));
      const auto model = load_model(*backend, open_model_folder(target_of(draft)), options);
      const std::int64_t rows = expect_kept_equals_all(*backend, *model, CacheType::kF32,
                                                       {{some_ids(90, model->vocab()), 10, {89}}});
      if (std::string(name) != "ref") continue;
      EXPECT_EQ(rows, model->draft_head()->reads(model->spec().order.size()) ? 80 : 1);
    }
  }
}

// --- what does not fit

void expect_refused(ErrorCode code, const std::string& part,
                    const std::function<void(Json&)>& change) {
  const auto backend = open_backend("ref", {});
  ModelFiles draft = open_model_folder(folder_of(kFull));
  change(draft.config);
  const std::string error = error_of(
      [&] {
        LoadOptions options;
        options.draft = draft;
        const ModelLoader loader(*backend, open_model_folder(target_of(kFull)), options);
      },
      code);
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(DraftRefusals, DraftsOfOtherModels) {
  constexpr auto kArgument = ErrorCode::kInvalidArgument;
  expect_refused(kArgument, "hidden size of 32", [](Json& c) { c["hidden_size"] = 32; });
  expect_refused(kArgument, "layer 2", [](Json& c) {
    c["dflash_config"]["target_layer_ids"] = {0, 2};
  });
  expect_refused(kArgument, "36 layers", [](Json& c) { c["num_target_layers"] = 36; });
  expect_refused(kArgument, "mask is token 256",
                 [](Json& c) { c["dflash_config"]["mask_token_id"] = 256; });
}

TEST(DraftRefusals, BrokenConfigs) {
  constexpr auto kFile = ErrorCode::kInvalidFile;
  const auto own = [](Json& c) -> Json& { return c["dflash_config"]; };
  for (const Json& bad : {Json(3), Json::array(), Json::array({-1}), Json::array({0.5}),
                          Json::array({"0"}), Json::array({1e300}), Json(nullptr)}) {
    expect_refused(kFile, "target_layer_ids", [&](Json& c) { own(c)["target_layer_ids"] = bad; });
  }
  expect_refused(kFile, "target_layer_ids", [](Json& c) {
    c["dflash_config"]["target_layer_ids"] = Json(std::vector<int>(65, 0));
  });
  for (const Json& bad : {Json(1), Json(0), Json(-4), Json(129), Json("6")}) {
    expect_refused(kFile, "block_size", [&](Json& c) { c["block_size"] = bad; });
  }
  expect_refused(kFile, "mask_token_id", [&](Json& c) { own(c)["mask_token_id"] = -1; });
  expect_refused(kFile, "mask", [&](Json& c) { own(c).erase("mask_token_id"); });
  expect_refused(kFile, "embedding", [&](Json& c) { own(c)["input_embedding_scale"] = -1; });
  // Tensors that the config does not mean.
  expect_refused(kFile, "fc", [&](Json& c) { own(c)["target_layer_ids"] = {0}; });
  expect_refused(kFile, "q_proj", [](Json& c) { c["head_dim"] = 16; });
  expect_refused(ErrorCode::kNotFound, "layers.2.", [](Json& c) {
    c["num_hidden_layers"] = 3;
    c["layer_types"].push_back("full_attention");
  });
}

TEST(DraftRefusals, WindowsThatAreNotCausal) {
  expect_refused(ErrorCode::kUnsupported, "sliding window", [](Json& c) {
    c["layer_types"][0] = "sliding_attention";
    c["use_sliding_window"] = true;
    c["sliding_window"] = 8;
    c["is_causal"] = false;
  });
}

TEST(DraftRefusals, ModelsInPlaceOfDraftsAndDraftsInPlaceOfModels) {
  const auto backend = open_backend("ref", {});
  const auto load = [&](const std::filesystem::path& model, const std::filesystem::path& draft) {
    LoadOptions options;
    if (!draft.empty()) options.draft = open_model_folder(draft);
    const ModelLoader loader(*backend, open_model_folder(model), options);
  };
  error_of([&] { load(target_of(kFull), target_of(kFull)); }, ErrorCode::kInvalidArgument);
  const std::string error = error_of([&] { load(folder_of(kFull), {}); }, ErrorCode::kUnsupported);
  EXPECT_NE(error.find("--draft"), std::string::npos) << error;
}

// What the plan says before anything is loaded.
TEST(DraftPlan, CountsWeightsCacheAndWork) {
  const auto backend = open_backend("ref", {});
  const ModelLoader plain(*backend, open_model_folder(target_of(kFull)), {});
  LoadOptions options;
  options.draft = open_model_folder(folder_of(kFull));
  const ModelLoader with(*backend, open_model_folder(target_of(kFull)), options);
  const ModelLoader::PlanOptions size{.context = 512, .sequences = 3};
  const MemoryPlan less = plain.plan(size);
  const MemoryPlan more = with.plan(size);
  EXPECT_GT(more.weights, less.weights);
  EXPECT_GT(more.work, less.work);
  // Two layers beside two, of the same heads.
  EXPECT_EQ(more.cache, 2 * less.cache);
}

}  // namespace
}  // namespace bl::test
