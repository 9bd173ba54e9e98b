// A chain of guesses by a tiny random model's own layer for multi-token prediction against an
// oracle (tools/make_draft_goldens.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "engine/model_session.h"
#include "engine/step_runner.h"
#include "format/safetensors_folder.h"
#include "model/golden.h"
#include "on_cuda.h"
#include "support/data.h"
#include "support/error_of.h"
#include "tiny_model.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

std::unique_ptr<ModelSession> load_mtp(const fs::path& model, const std::string& backend,
                                       CacheType cache) {
  SessionOptions options = textless_session(model, backend, 4);
  options.drafts = 8;
  options.longest = 100;
  options.cache = cache;
  options.mtp = true;
  return ModelSession::load(options);
}

Ids read_ids(const SafetensorsFolder& source, const std::string& name) {
  const auto values = values_of<std::int64_t>(source, name);
  return {values.begin(), values.end()};
}

// Computes ids[cached, end) in steps of so many tokens.
void read_on(StepRunner& runner, Sequence& sequence, std::int64_t end, std::int64_t chunk) {
  while (sequence.cached < end) {
    const StepItem item{.sequence = &sequence,
                        .count = std::min(chunk, end - sequence.cached),
                        .logits = LogitRows::kNone};
    runner.run({&item, 1});
  }
}

// Rows of logits of a chain behind each sequence, each from the likeliest guess before.
std::vector<std::vector<float>> chain(StepRunner& runner, const std::vector<Sequence*>& sequences,
                                      std::int64_t count, std::vector<Ids>& guesses) {
  std::vector<std::vector<float>> logits(sequences.size());
  guesses.assign(sequences.size(), {});
  for (std::int64_t round = 0; round < count; ++round) {
    std::vector<StepItem> items;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      items.push_back({.sequence = sequences[i], .count = round + 1, .logits = LogitRows::kLast});
      items.back().guessed = guesses[i];
    }
    const StepOutput output = runner.draft(items);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto row = output.logits.row(static_cast<std::int64_t>(i));
      logits[i].insert(logits[i].end(), row.begin(), row.end());
      guesses[i].push_back(
          static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
  }
  return logits;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

void compare_mtp(const std::string& backend, CacheType cache, float tolerance) {
  const fs::path folder = unpacked("draft-tiny") / "mtp";
  const SafetensorsFolder golden(folder / "golden.safetensors");
  const auto session = load_mtp(folder, backend, cache);
  StepRunner runner(*session);
  for (const char* number : {"0", "1"}) {
    const Ids prompt = read_ids(golden, std::string("ids_") + number);
    const auto expected = values_of<float>(golden, std::string("logits_") + number);
    const std::int64_t count = static_cast<std::int64_t>(expected.size()) / session->vocab();
    for (const std::int64_t tokens : {100, 7, 1}) {
      Sequence sequence = session->new_sequence();
      sequence.ids = prompt;
      ASSERT_TRUE(sequence.pages.reserve(100));
      read_on(runner, sequence, std::ssize(prompt) - 1, tokens);
      std::vector<Ids> guesses;
      expect_near(chain(runner, {&sequence}, count, guesses)[0], expected, tolerance);
    }
    // A generation: guesses, and all of them verified in one step, whatever they are worth.
    const Ids text = read_ids(golden, std::string("text_") + number);
    const Ids starts = read_ids(golden, std::string("starts_") + number);
    const Ids all = read_ids(golden, std::string("guesses_") + number);
    Sequence sequence = session->new_sequence();
    sequence.ids = prompt;
    ASSERT_TRUE(sequence.pages.reserve(100));
    read_on(runner, sequence, std::ssize(prompt), 100);
    for (std::size_t round = 0; round < starts.size(); ++round) {
      const std::int64_t start = starts[round];
      sequence.cached = start;
      sequence.ids.assign(text.begin(), text.begin() + start + 1);
      std::vector<Ids> guesses;
      chain(runner, {&sequence}, count, guesses);
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(round) * count;
      EXPECT_EQ(guesses[0], Ids(begin, begin + count)) << "round " << round;
      sequence.ids.insert(sequence.ids.end(), guesses[0].begin(), guesses[0].end());
      const StepItem item{.sequence = &sequence, .count = 1 + count, .logits = LogitRows::kAll};
      runner.run({&item, 1});
    }
  }
}

TEST(MtpGoldens, RefEqualsTheOracle) { compare_mtp("ref", CacheType::kF32, 2e-3f); }
TEST(MtpGoldens, CpuEqualsTheOracle) { compare_mtp("cpu", CacheType::kF32, 3e-2f); }
class MtpGoldensOnCuda : public OnCuda {};
TEST_F(MtpGoldensOnCuda, EqualTheOracle) { compare_mtp("cuda:0", CacheType::kF16, 5e-2f); }

// States of several texts are carried side by side.
TEST(MtpGoldens, BatchEqualsSingle) {
  const fs::path folder = unpacked("draft-tiny") / "mtp";
  const SafetensorsFolder golden(folder / "golden.safetensors");
  for (const char* backend : {"ref", "cpu"}) {
    const auto session = load_mtp(folder, backend, CacheType::kF32);
    StepRunner runner(*session);
    std::vector<Ids> prompts{read_ids(golden, "ids_1"), read_ids(golden, "ids_0")};
    prompts.push_back({prompts[0].begin() + 9, prompts[0].end()});
    std::vector<std::vector<float>> alone;
    std::vector<Ids> guesses;
    const auto sequence_of = [&](const Ids& prompt) {
      auto sequence = std::make_unique<Sequence>(session->new_sequence());
      sequence->ids = prompt;
      EXPECT_TRUE(sequence->pages.reserve(100));
      return sequence;
    };
    for (const Ids& prompt : prompts) {
      const auto sequence = sequence_of(prompt);
      read_on(runner, *sequence, std::ssize(prompt) - 1, 100);
      alone.push_back(chain(runner, {sequence.get()}, 3, guesses)[0]);
    }
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<Sequence*> together;
    std::vector<StepItem> items;
    for (const Ids& prompt : prompts) {
      sequences.push_back(sequence_of(prompt));
      together.push_back(sequences.back().get());
      items.push_back({.sequence = together.back(),
                       .count = std::ssize(prompt) - 1,
                       .logits = LogitRows::kNone});
    }
    runner.run(items);
    EXPECT_EQ(chain(runner, together, 3, guesses), alone) << backend;
  }
}

TEST(MtpRefusals, ModelsWithoutSuchLayers) {
  const auto refused = [](const fs::path& model, ErrorCode code) {
    return error_of([&] { load_mtp(model, "ref", CacheType::kF32); }, code);
  };
  refused(unpacked("hf-tiny") / "qwen3", ErrorCode::kUnsupported);
  refused(unpacked("archs-tiny") / "hy-v3", ErrorCode::kInvalidArgument);
  // Tensors that the config promises are missing.
  const fs::path folder = scratch_dir("mtp_missing");
  const fs::path source = unpacked("archs-tiny") / "hy-v3";
  fs::copy_file(source / "model.safetensors", folder / "model.safetensors");
  Json config = read_json_file(source / "config.json");
  config["num_nextn_predict_layers"] = 1;
  write_file_atomically(folder / "config.json", config.dump());
  const std::string error = refused(folder, ErrorCode::kNotFound);
  EXPECT_NE(error.find("model.layers.3.eh_proj"), std::string::npos) << error;
}

}  // namespace
}  // namespace bl::test
