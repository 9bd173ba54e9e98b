// Tokens of random models choose experts as evenly as if each chose for itself: what a step of a
// mixture of experts costs depends on how many distinct experts it meets.

#include "random_routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "embedded_data.h"
#include "engine/open_model.h"
#include "model/golden.h"
#include "random_model.h"
#include "step_check.h"
#include "support/data.h"

namespace bl::test {
namespace {

constexpr int kExperts = 128;
constexpr int kPerToken = 8;
constexpr int kLayers = 6;
constexpr int kSequences = 16;

// Each call of the op: the experts of each of its tokens.
struct RouteLog {
  const OpTable* ops = nullptr;
  std::vector<std::vector<std::int32_t>> calls;
};
RouteLog* the_log = nullptr;  // ops are functions without a state

void logged_route(ExecContext& ctx, const RouteArgs& args) {
  the_log->ops->route(ctx, args);
  the_log->calls.emplace_back(args.experts, args.experts + args.logits.rows() * args.k);
}

void routed_elsewhere(ExecContext& ctx, const RouteArgs& args) {
  the_log->ops->route(ctx, args);
  // The last expert of each token is another one.
  for (std::int64_t row = 0; row < args.logits.rows(); ++row) {
    std::int32_t& expert = args.experts[(row + 1) * args.k - 1];
    expert = (expert + kExperts / 2) % kExperts;
  }
}

std::string moe_config(std::int64_t experts, std::int64_t per_token) {
  const auto path = scratch_dir("random-routing") / "config.json";
  Json config = parse_json(embedded_bench_shapes(), "shapes").at("config");
  config.update({{"architectures", {"Qwen3MoeForCausalLM"}},
                 {"hidden_size", 256},
                 {"num_hidden_layers", kLayers},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 64},
                 {"num_experts", experts},
                 {"num_experts_per_tok", per_token},
                 {"moe_intermediate_size", 64},
                 {"norm_topk_prob", true},
                 {"vocab_size", 2000}});
  std::ofstream(path) << config.dump();
  return path.string();
}

// Distinct experts of the last token of each of some sequences of `length` tokens each.
std::size_t distinct_of_last(const std::vector<std::int32_t>& experts, int length) {
  std::set<std::int32_t> distinct;
  for (int sequence = 0; sequence < kSequences; ++sequence) {
    const auto row = experts.begin() + ((sequence + 1) * length - 1) * kPerToken;
    distinct.insert(row, row + kPerToken);
  }
  return distinct.size();
}

std::int32_t best_of_last(const std::vector<float>& logits, std::int64_t vocab) {
  const auto row = logits.end() - vocab;
  return static_cast<std::int32_t>(std::max_element(row, logits.end()) - row);
}

class RandomRouting : public testing::TestWithParam<std::tuple<const char*, bool>> {};

// Sixteen sequences that go on with the likeliest token, as `bench -b 16` computes them. Tokens of
// compared models choose among classes, so single steps vary more, and layers are judged over all.
TEST_P(RandomRouting, StepsMeetAsManyExpertsAsEvenRouting) {
  const auto& [format, level] = GetParam();
  RandomModelRequest request;
  request.shape = moe_config(kExperts, kPerToken);
  request.format = format;
  request.mix = "4";
  request.level = level;
  GoldenRun run("ref", open_random_model(request).opened->files, CacheType::kF32);
  RouteLog log;
  log.ops = &run.backend().ops();
  the_log = &log;
  OpTable ops = *log.ops;
  ops.route = logged_route;
  run.use(ops);

  constexpr int kSteps = 4;
  const double even = kExperts * (1 - std::pow(1 - double{kPerToken} / kExperts, kSequences));
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int32_t> id(0, 1999);
  std::vector<std::vector<std::int32_t>> sequences(kSequences);
  for (auto& ids : sequences) {
    for (int i = 0; i < 4; ++i) ids.push_back(id(random));
  }
  std::vector<double> sums(kLayers);
  for (int step = 0; step < kSteps; ++step) {
    log.calls.clear();
    const std::vector<std::vector<float>> logits = run.logits(sequences);
    ASSERT_EQ(log.calls.size(), sums.size());
    for (std::size_t layer = 0; layer < sums.size(); ++layer) {
      const auto distinct = static_cast<double>(
          distinct_of_last(log.calls[layer], static_cast<int>(sequences[0].size())));
      EXPECT_NEAR(distinct, even, (level ? 0.5 : 0.2) * even)
          << "layer " << layer << ", step " << step;
      sums[layer] += distinct;
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      sequences[i].push_back(best_of_last(logits[i], run.model().vocab()));
    }
  }
  for (const double sum : sums) EXPECT_NEAR(sum / kSteps, even, 0.2 * even);
}

// A check of a model that says the same whatever its experts compute would be worth nothing.
TEST(RandomRoutingSensitivity, OneWrongExpertOfATokenShows) {
  for (const char* format : {"exl2", "fp16"}) {
    RandomModelRequest request;
    request.shape = moe_config(kExperts, kPerToken);
    request.format = format;
    request.mix = "4";
    request.level = true;
    GoldenRun run("ref", open_random_model(request).opened->files, CacheType::kF32);
    const std::vector<std::int32_t> ids = some_ids(kCheckedTokens, run.model().vocab());
    const std::vector<float> right = run.logits({ids})[0];
    RouteLog log;
    log.ops = &run.backend().ops();
    the_log = &log;
    OpTable ops = *log.ops;
    ops.route = routed_elsewhere;
    run.use(ops);
    const std::vector<float> wrong = run.logits({ids})[0];
    double difference = 0;
    double length = 0;
    for (std::size_t i = 0; i < right.size(); ++i) {
      difference += std::pow(double{wrong[i]} - double{right[i]}, 2);
      length += std::pow(double{right[i]}, 2);
    }
    EXPECT_GT(std::sqrt(difference / length), kMostApart) << format;
  }
}

std::string routing_name(const testing::TestParamInfo<std::tuple<const char*, bool>>& info) {
  return std::string(std::get<0>(info.param)) +
         (std::get<1>(info.param) ? "_compared" : "_measured");
}

INSTANTIATE_TEST_SUITE_P(All, RandomRouting,
                         testing::Combine(testing::Values("exl2", "gptq", "fp16"), testing::Bool()),
                         routing_name);

}  // namespace
}  // namespace bl::test
