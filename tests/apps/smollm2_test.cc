// The real model, where it is (./quickstart makes models/smollm2-135m, tools/assemble_exl2_demo the
// EXL2 folder): greedy continuations against the stored ones, and the distance of the EXL2
// file to the fp16 model on the first row of the evaluation text.

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/json.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr bool kSanitized = BL_SANITIZED;

// BITLOOM_MODELS, or models/ of the source tree.
fs::path model_folder(const char* name) {
  const char* variable = std::getenv("BITLOOM_MODELS");
  const fs::path models =
      variable != nullptr ? fs::path(variable) : data_dir().parent_path().parent_path() / "models";
  const fs::path folder = models / name;
  return fs::exists(folder / "config.json") ? folder : fs::path();
}

TEST(SmolLM2, GreedyContinuationsUntilATie) {
  const fs::path model = model_folder("smollm2-135m");
  const fs::path golden = shared_dir() / "goldens" / "smollm2" / "greedy.json";
  if (model.empty()) GTEST_SKIP() << "no models/smollm2-135m: run ./quickstart first";
  if (shared_dir().empty()) GTEST_SKIP() << "no golden data: set BITLOOM_DATA";
  const Json document = read_json_file(golden);
  ASSERT_FALSE(document["cases"].empty());
  for (const Json& test : document["cases"]) {
    const auto prompt = test["prompt"].get<std::string>();
    // Tokens up to the first step whose best two are nearly even: another engine may differ there.
    std::vector<std::int32_t> sure;
    for (std::size_t i = 0; i < test["continuation_ids"].size(); ++i) {
      if (test["margins"][i].get<double>() < 0.02) break;
      sure.push_back(test["continuation_ids"][i].get<std::int32_t>());
    }
    ASSERT_FALSE(sure.empty());
    const ProgramResult ids =
        run_program({"tokenize", "-m", model.string()}, Json{{"text", prompt}}.dump() + "\n");
    ASSERT_EQ(ids.status, 0) << ids.err;
    EXPECT_EQ(parse_json(ids.out, "stdout")["ids"], test["prompt_ids"]) << prompt;

    const ProgramResult text =
        run_program({"detokenize", "-m", model.string()},
                    Json{{"ids", sure}, {"skip_special", true}}.dump() + "\n");
    const auto expected = parse_json(text.out, "stdout")["text"].get<std::string>();
    const ProgramResult run = run_program({"run", "-m", model.string(), "--greedy", "-p", prompt,
                                           "-n", std::to_string(sure.size()), "-q"});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, expected + "\n") << prompt;
    if (kSanitized) break;  // sanitizers take a minute over all of them
  }
}

TEST(SmolLM2, ReferenceExl2FileIsAsFarAsTheReferenceSays) {
  if (kSanitized) GTEST_SKIP() << "minutes of arithmetic under sanitizers; release runs it";
  const fs::path base = model_folder("smollm2-135m");
  const fs::path model = model_folder("smollm2-135m-exl2-4.0");
  if (base.empty() || model.empty()) {
    GTEST_SKIP() << "no models/smollm2-135m and models/smollm2-135m-exl2-4.0";
  }
  if (shared_dir().empty()) GTEST_SKIP() << "no evaluation text: set BITLOOM_DATA";
  const ProgramResult result = run_program(
      {"eval", "kld", "-m", model.string(), "--base", base.string(), "--text",
       (shared_dir() / "eval" / "wiki_dev.txt").string(), "--rows", "1", "--backend", "cpu", "-q"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json document = parse_json(result.out, "stdout");
  // Row 0 as measured with the reference converter's own decoder in fp32.
  EXPECT_NEAR(document["kld"].get<double>(), 0.29038, 0.04 * 0.29038);
  EXPECT_NEAR(document["ppl"].get<double>(), 19.5047, 0.01 * 19.5047);
  EXPECT_NEAR(document["base_ppl"].get<double>(), 15.4198, 0.01 * 15.4198);
}

}  // namespace
}  // namespace bl::test
