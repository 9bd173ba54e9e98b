#include "engine/generation_defaults.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

GenerationDefaults read(const char* generation, const char* config) {
  return read_generation_defaults(parse_json(generation, "g"), parse_json(config, "c"),
                                  "generation_config.json");
}

TEST(GenerationDefaults, NothingGiven) {
  const GenerationDefaults defaults = read("null", "{}");
  EXPECT_EQ(defaults.sampling.temperature, SamplingParams{}.temperature);
  EXPECT_TRUE(defaults.end_tokens.empty());
}

TEST(GenerationDefaults, ValuesOfTheModelWin) {
  const GenerationDefaults defaults =
      read(R"({"temperature": 0.6, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05,
               "do_sample": true, "eos_token_id": [7, 3], "transformers_version": "4"})",
           R"({"eos_token_id": 3, "text_config": {"eos_token_id": 1}})");
  EXPECT_EQ(defaults.sampling.temperature, 0.6);
  EXPECT_EQ(defaults.sampling.top_k, 20);
  EXPECT_EQ(defaults.sampling.top_p, 0.8);
  EXPECT_EQ(defaults.sampling.min_p, 0);
  EXPECT_EQ(defaults.sampling.repetition_penalty, 1.05);
  EXPECT_EQ(defaults.end_tokens, (std::vector<std::int32_t>{1, 3, 7}));
}

// What an OpenAI request leaves out is not what the command line takes.
TEST(GenerationDefaults, RequestsStartFromThePlainDistribution) {
  EXPECT_EQ(read("null", "{}").request, SamplingParams::plain());
  SamplingParams expected = SamplingParams::plain();
  expected.temperature = 0.6;
  expected.min_p = 0.1;
  EXPECT_EQ(read(R"({"temperature": 0.6, "min_p": 0.1, "top_k": -1})", "{}").request, expected);
  EXPECT_EQ(read(R"({"temperature": 0.6})", "{}").sampling.top_k, SamplingParams{}.top_k);
  EXPECT_TRUE(read(R"({"do_sample": false})", "{}").request.greedy());
}

TEST(GenerationDefaults, OtherNamesOfAValueCount) {
  EXPECT_EQ(read(R"({"typical_p": 0.3, "top_p": null})", "{}").sampling.typical, 0.3);
}

TEST(GenerationDefaults, DoSampleFalseIsGreedy) {
  EXPECT_TRUE(read(R"({"do_sample": false})", "{}").sampling.greedy());
  EXPECT_FALSE(read(R"({"do_sample": true})", "{}").sampling.greedy());
}

TEST(GenerationDefaults, WrongKindsAreNamed) {
  for (const char* text :
       {R"({"temperature": "hot"})", R"({"top_k": 1.5})", R"({"eos_token_id": "x"})",
        R"({"eos_token_id": [1, -2]})", R"({"top_p": 7})", "[]"}) {
    try {
      read(text, "{}");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
    }
  }
}

}  // namespace
}  // namespace bl
