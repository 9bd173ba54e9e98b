#include "sample/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"

namespace bl {
namespace {

struct WrongValue {
  const char* name;
  std::function<void(SamplingParams&)> change;
};

TEST(SamplingParams, DefaultsAndPlainAreValid) {
  EXPECT_NO_THROW(validate(SamplingParams{}));
  EXPECT_NO_THROW(validate(SamplingParams::plain()));
  EXPECT_NO_THROW(validate(SamplingParams{}, 32));  // the default top-k needs no larger vocabulary
}

TEST(SamplingParams, WrongValuesAreNamedInOneLine) {
  using P = SamplingParams;
  const double kNan = std::nan("");
  const double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<WrongValue> kWrong{
      {"temperature", [](P& p) { p.temperature = -1; }},
      {"temperature", [=](P& p) { p.temperature = kNan; }},
      {"temperature", [=](P& p) { p.temperature = kInfinity; }},
      {"min_temp", [](P& p) { p.min_temp = -0.5, p.max_temp = 1; }},
      {"max_temp", [=](P& p) { p.max_temp = kNan; }},
      {"temp_exponent", [](P& p) { p.temp_exponent = -1, p.max_temp = 1; }},
      {"smoothing_factor", [](P& p) { p.smoothing_factor = -0.1; }},
      {"smoothing_curve", [](P& p) { p.smoothing_curve = 4, p.smoothing_factor = 1; }},
      {"top_n_sigma", [](P& p) { p.top_n_sigma = -1; }},
      {"top_k", [](P& p) { p.top_k = -4; }},
      {"top_p", [](P& p) { p.top_p = 1.5; }},
      {"top_a", [](P& p) { p.top_a = -0.1; }},
      {"min_p", [](P& p) { p.min_p = -0.1; }},
      {"tfs", [](P& p) { p.tfs = 2; }},
      {"typical", [=](P& p) { p.typical = kNan; }},
      {"mirostat_mode", [](P& p) { p.mirostat_mode = 1; }},
      {"mirostat_tau", [](P& p) { p.mirostat_tau = -1, p.mirostat_mode = 2; }},
      {"mirostat_eta", [](P& p) { p.mirostat_eta = 1e9, p.mirostat_mode = 2; }},
      {"xtc_probability", [](P& p) { p.xtc_probability = 1.1; }},
      {"xtc_threshold", [](P& p) { p.xtc_threshold = -1, p.xtc_probability = 1; }},
      {"xtc_ignore_tokens", [](P& p) { p.xtc_ignore_tokens = {-7}; }},
      {"skew", [=](P& p) { p.skew = -kInfinity; }},
      {"adaptive_target", [](P& p) { p.adaptive_target = 2; }},
      {"adaptive_decay", [](P& p) { p.adaptive_decay = 1, p.adaptive_target = 0.5; }},
      {"repetition_penalty", [](P& p) { p.repetition_penalty = 0; }},
      {"repetition_decay", [](P& p) { p.repetition_decay = -1, p.repetition_penalty = 2; }},
      {"penalty_range", [](P& p) { p.penalty_range = -2, p.presence_penalty = 1; }},
      {"penalty_range",
       [](P& p) { p.penalty_range = std::int64_t{1} << 60, p.frequency_penalty = 1; }},
      {"presence_penalty", [](P& p) { p.presence_penalty = 1e30; }},
      {"frequency_penalty", [=](P& p) { p.frequency_penalty = kNan; }},
      {"dry_multiplier", [](P& p) { p.dry_multiplier = -1; }},
      {"dry_base", [](P& p) { p.dry_base = 0.5, p.dry_multiplier = 1; }},
      {"dry_allowed_length", [](P& p) { p.dry_allowed_length = 0, p.dry_multiplier = 1; }},
      {"dry_range", [](P& p) { p.dry_range = -2, p.dry_multiplier = 1; }},
      {"dry_sequence_breakers", [](P& p) { p.dry_sequence_breakers.assign(300, "x"); }},
      {"dry_breaker_tokens",
       [](P& p) {
         p.dry_breaker_tokens = {3, -1};
       }},
      {"logit_bias",
       [](P& p) {
         p.logit_bias = {{-1, 0}};
       }},
      {"logit_bias",
       [=](P& p) {
         p.logit_bias = {{5, kNan}};
       }},
      {"logit_bias",
       [=](P& p) {
         p.logit_bias = {{5, kInfinity}};
       }},
      {"banned_tokens", [](P& p) { p.banned_tokens = {-5}; }},
      {"banned_tokens", [](P& p) { p.banned_tokens.assign((1u << 20) + 1, 1); }},
      {"banned_tokens",
       [](P& p) {
         p.allowed_tokens.assign(1u << 19, 1);
         p.xtc_ignore_tokens.assign(1u << 18, 1);
         p.logit_bias.assign((1u << 18) + 1, {1, 1});
       }},
      {"allowed_tokens", [](P& p) { p.allowed_tokens = {-5}; }},
      {"allowed_tokens has 3 ids, and all",
       [=](P& p) {
         p.allowed_tokens = {1, 2, 1};
         p.banned_tokens = {2};
         p.logit_bias = {{1, -kInfinity}, {3, 5}};
       }},
      {"max_tokens", [](P& p) { p.max_tokens = -1; }},
      {"min_tokens", [](P& p) { p.min_tokens = -1; }},
      {"min_tokens", [](P& p) { p.min_tokens = 11, p.max_tokens = 10; }},
      {"stop_token_ids", [](P& p) { p.stop_tokens = {-1}; }},
      {"stop", [](P& p) { p.stop_strings.assign(5000, "x"); }},
      {"stop", [](P& p) { p.stop_strings = {""}; }},
      {"stop", [](P& p) { p.stop_strings = {std::string(5000, 'x')}; }},
      {"banned_strings", [](P& p) { p.banned_strings.assign(8193, "x"); }},
      {"banned_strings", [](P& p) { p.banned_strings.assign(100, std::string(2000, 'x')); }},
      {"cfg_scale", [=](P& p) { p.cfg_scale = kNan; }},
      {"negative_prompt", [](P& p) { p.negative_prompt.assign(2u << 20, 'x'); }},
      {"n is 1000000", [](P& p) { p.n = 1000000; }},
      {"n is 0", [](P& p) { p.n = 0; }},
      {"best_of", [](P& p) { p.best_of = -1; }},
      {"best_of", [](P& p) { p.n = 4, p.best_of = 2; }},
      {"top_logprobs", [](P& p) { p.logprobs = true, p.top_logprobs = 100000; }},
      {"top_logprobs", [](P& p) { p.top_logprobs = 5; }},
      {"prompt_logprobs", [](P& p) { p.prompt_logprobs = -2; }},
      {"loop_detect_window", [](P& p) { p.loop_detect_window = -1; }},
      {"loop_detect_repeats", [](P& p) { p.loop_detect_repeats = 1, p.loop_detect_window = 9; }},
  };
  for (const WrongValue& wrong : kWrong) {
    SamplingParams params;
    wrong.change(params);
    try {
      validate(params);
      ADD_FAILURE() << wrong.name << " was accepted";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(text.find(wrong.name), 0u) << text;
      EXPECT_EQ(text.find('\n'), text.npos) << text;
    }
  }
}

TEST(SamplingParams, PreparedListsAscendAndNameATokenOnce) {
  SamplingParams params;
  params.banned_tokens = {5, 3, 5};
  params.allowed_tokens = {9, 3, 9, 1};
  params.xtc_ignore_tokens = {2, 2};
  params.dry_breaker_tokens = {4, 1};
  params.stop_tokens = {8, 7, 8};
  const double minus_infinity = -std::numeric_limits<double>::infinity();
  params.logit_bias = {{7, 1}, {2, 0.5}, {7, -3}, {9, 4}, {9, minus_infinity}};
  prepare(params);
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(params.banned_tokens, (Ids{3, 5}));
  EXPECT_EQ(params.allowed_tokens, (Ids{1, 3, 9}));
  EXPECT_EQ(params.xtc_ignore_tokens, Ids{2});
  EXPECT_EQ(params.dry_breaker_tokens, (Ids{1, 4}));
  EXPECT_EQ(params.stop_tokens, (Ids{7, 8}));
  EXPECT_EQ(params.logit_bias, (std::vector<TokenBias>{{2, 0.5}, {7, -2}, {9, minus_infinity}}));
}

TEST(SamplingParams, OneAllowedTokenThatIsNotBarredIsEnough) {
  SamplingParams params;
  params.allowed_tokens = {1, 2};
  params.banned_tokens = {2};
  params.logit_bias = {{1, -10000}};
  EXPECT_NO_THROW(validate(params));
}

TEST(SamplingParams, TokensBeyondTheVocabularyAreNamed) {
  const auto expect_wrong = [](auto change, const char* text) {
    SamplingParams params;
    change(params);
    EXPECT_NO_THROW(validate(params));
    try {
      validate(params, 1000);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  expect_wrong([](auto& p) { p.logit_bias = {{1000, 1}}; }, "logit_bias has token 1000");
  expect_wrong([](auto& p) { p.logit_bias.assign(1001, {7, 1}); }, "logit_bias lists 1001 tokens");
  expect_wrong([](auto& p) { p.banned_tokens = {999, 1000}; }, "banned_tokens has token 1000");
  expect_wrong([](auto& p) { p.allowed_tokens = {INT32_MAX}; }, "allowed_tokens");
  expect_wrong([](auto& p) { p.stop_tokens = {5000}; }, "stop_token_ids");
  expect_wrong([](auto& p) { p.dry_breaker_tokens = {5000}; }, "dry_breaker_tokens");
  expect_wrong([](auto& p) { p.xtc_ignore_tokens = {5000}; }, "xtc_ignore_tokens");
  SamplingParams all;
  all.top_k = 100000;  // cuts nothing
  EXPECT_NO_THROW(validate(all, 1000));
}

// The defaults that servers declare for samplers that are off are out of range here.
TEST(SamplingParams, ASamplerThatIsOffDoesNotJudgeItsOtherValues) {
  SamplingParams params;
  params.penalty_range = -5;
  params.repetition_decay = -1;
  params.dry_base = 0;
  params.dry_allowed_length = 0;
  params.dry_range = -9;
  params.min_temp = -1;
  params.max_temp = -1;
  params.temp_exponent = -1;
  params.smoothing_curve = 0;
  params.mirostat_tau = -1;
  params.mirostat_eta = 11;
  params.xtc_threshold = 5;
  params.adaptive_decay = 1;
  params.loop_detect_repeats = 0;
  EXPECT_NO_THROW(validate(params));
  params.dry_multiplier = 0.5;
  EXPECT_THROW(validate(params), Error);
}

TEST(SamplingParams, DevicesSampleTheCommonChainOnly) {
  using P = SamplingParams;
  const auto device = [](auto change) {
    SamplingParams params;
    change(params);
    return device_sampleable(params);
  };
  EXPECT_TRUE(device([](P&) {}));
  EXPECT_TRUE(device([](P& p) { p.temperature = 0; }));
  EXPECT_TRUE(device([](P& p) { p.repetition_penalty = 1.2, p.presence_penalty = 1; }));
  EXPECT_TRUE(device([](P& p) { p.temperature = 0, p.tfs = 0.5; }));  // greedy cuts nothing
  EXPECT_FALSE(device([](P& p) { p.repetition_decay = 5; }));
  EXPECT_FALSE(device([](P& p) { p.dry_multiplier = 1; }));
  EXPECT_TRUE(device([](P& p) { p.logit_bias = {{1, 1}, {2, 1}}; }));
  EXPECT_FALSE(device([](P& p) { p.logit_bias = {{2, 1}, {1, 1}, {2, 3}}; }));
  EXPECT_FALSE(device([](P& p) { p.logit_bias.resize(5000); }));
  EXPECT_TRUE(device([](P& p) { p.temperature = 0, p.banned_tokens = {1}; }));
  EXPECT_FALSE(device([](P& p) { p.banned_tokens.resize(5000); }));
  EXPECT_FALSE(device([](P& p) { p.allowed_tokens = {1}; }));
  EXPECT_TRUE(device([](P& p) { p.ban_end_tokens = true; }));
  EXPECT_TRUE(device([](P& p) { p.min_tokens = 1; }));
  EXPECT_FALSE(device([](P& p) { p.temperature_last = true; }));
  EXPECT_FALSE(device([](P& p) { p.max_temp = 1; }));
  EXPECT_FALSE(device([](P& p) { p.smoothing_factor = 1; }));
  EXPECT_FALSE(device([](P& p) { p.top_n_sigma = 1; }));
  EXPECT_FALSE(device([](P& p) { p.top_a = 0.1; }));
  EXPECT_FALSE(device([](P& p) { p.tfs = 0.5; }));
  EXPECT_FALSE(device([](P& p) { p.typical = 0.5; }));
  EXPECT_FALSE(device([](P& p) { p.mirostat_mode = 2; }));
  EXPECT_FALSE(device([](P& p) { p.xtc_probability = 0.5; }));
  EXPECT_FALSE(device([](P& p) { p.skew = 0.5; }));
  EXPECT_FALSE(device([](P& p) { p.adaptive_target = 0.5; }));
  EXPECT_TRUE(device([](P& p) { p.logprobs = true; }));
  EXPECT_FALSE(device([](P& p) { p.logprobs = true, p.top_logprobs = 1; }));
  EXPECT_FALSE(device([](P& p) { p.logprobs = p.logprobs_after = true; }));
  EXPECT_FALSE(device([](P& p) { p.logprobs = true, p.logit_bias = {{1, 1}}; }));
  EXPECT_FALSE(device([](P& p) { p.logprobs = true, p.presence_penalty = 1; }));
  EXPECT_FALSE(device([](P& p) { p.cfg_scale = 1.5; }));
}

TEST(SamplingParams, OrdersNameEverythingThatIsOn) {
  const auto refusal = [](auto change) -> std::string {
    SamplingParams params = SamplingParams::plain();
    params.min_p = 0.1;
    params.sampler_order = {"min-p", "temperature"};
    change(params);
    try {
      validate(params);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  using P = SamplingParams;
  EXPECT_EQ(refusal([](P&) {}), "");
  EXPECT_EQ(refusal([](P& p) { p.temperature = 2, p.repetition_penalty = 1.1; }), "");
  EXPECT_EQ(refusal([](P& p) { p.min_temp = 0.5, p.max_temp = 2; }), "");
  EXPECT_EQ(refusal([](P& p) { p.top_n_sigma = 1; }), "");  // has its place
  EXPECT_EQ(refusal([](P& p) { p.top_k = 50; }),
            "sampler_order does not name top-k, which is on: name it, or turn it off (top_k: 0)");
  EXPECT_NE(refusal([](P& p) { p.sampler_order = {"min-p"}, p.temperature = 0; }), "");
  EXPECT_EQ(
      refusal([](P& p) { p.sampler_order.push_back("top_k\n"); }),
      "sampler_order has \"top_k\\n\"; did you mean top-k? (it should list names from smoothing, "
      "temperature, top-k, top-p, top-a, min-p, tail-free, typical, mirostat, xtc, skew, "
      "adaptive-p)");
  EXPECT_NE(refusal([](P& p) { p.sampler_order.push_back("min-p"); }).find("\"min-p\" twice"),
            std::string::npos);
  EXPECT_NE(refusal([](P& p) { p.sampler_order.assign(100000, std::string(50, 'x')); }), "");
  EXPECT_NE(
      refusal([](P& p) { p.temperature_last = true; }).find("temperature_last and sampler_order"),
      std::string::npos);
  for (const auto& change : std::vector<std::function<void(P&)>>{
           [](P& p) { p.smoothing_factor = 1; }, [](P& p) { p.top_p = 0.5; },
           [](P& p) { p.top_a = 0.5; }, [](P& p) { p.tfs = 0.5; }, [](P& p) { p.typical = 0.5; },
           [](P& p) { p.mirostat_mode = 2; }, [](P& p) { p.xtc_probability = 0.5; },
           [](P& p) { p.skew = 1; }, [](P& p) { p.adaptive_target = 0.5; }}) {
    EXPECT_NE(refusal(change).find("sampler_order does not name"), std::string::npos);
  }
}

TEST(SamplingParams, DevicesSampleTheirOwnOrderOnly) {
  const auto device = [](std::vector<std::string> order) {
    SamplingParams params;  // temperature, top-k, top-p
    params.sampler_order = std::move(order);
    validate(params);
    return device_sampleable(params);
  };
  EXPECT_TRUE(device({"temperature", "top-k", "top-p", "min-p"}));
  EXPECT_TRUE(device({"temperature", "top-k", "typical", "top-p"}));  // typical is off
  EXPECT_FALSE(device({"top-k", "temperature", "top-p"}));
  EXPECT_FALSE(device({"top-p", "top-k", "temperature"}));
  SamplingParams greedy;
  greedy.temperature = 0;
  greedy.sampler_order = {"top-p", "top-k", "temperature"};
  EXPECT_TRUE(device_sampleable(greedy));
}

TEST(SamplingParams, SeedsOfAnswersDiffer) {
  EXPECT_EQ(seed_of_answer(42, 0), 42u);
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    for (std::int64_t i = 0; i < 30; ++i) seeds.push_back(seed_of_answer(seed, i));
  }
  std::sort(seeds.begin(), seeds.end());
  EXPECT_EQ(std::adjacent_find(seeds.begin(), seeds.end()), seeds.end());
}

}  // namespace
}  // namespace bl
