// Measurements of ExLlamaV2's converter.

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "convert/reference_measurement.h"

namespace bl::test {
namespace {

Json mix(const std::vector<int>& bits, const std::vector<double>& shares, int size) {
  Json sizes = Json::object();
  for (const int width : bits) sizes[std::to_string(width)] = size;
  return {{"bits", bits}, {"bits_prop", shares}, {"group_size", sizes}, {"scale_bits", 4}};
}

// Modules m0 … with linears a [576, 64] and b [96, 32], each with options of falling error.
Json make_document(int modules) {
  Json document{{"measurement", Json::object()}, {"last_module_idx", 3}};
  for (int m = 0; m < modules; ++m) {
    Json options = Json::array();
    const double error = 0.1 * (m + 1);
    for (const auto& [width, size] : {std::pair(2, 64), {3, 64}, {4, 32}, {5, 128}, {8, 128}}) {
      options.push_back({{"accuracy", 1.0 - error * std::pow(2.5, 2 - width)},
                         {"total_bits", 1},
                         {"a", mix({width}, {1.0}, size)},
                         {"b", mix({width}, {1.0}, size)}});
    }
    options[0]["a"] = mix({3, 2}, {0.05, 0.95}, 64);
    document["measurement"]["m" + std::to_string(m)] = options;
  }
  document["measurement"]["lm_head"] = nullptr;
  return document;
}

std::vector<PlannedMatrix> make_linears(int modules) {
  std::vector<PlannedMatrix> linears;
  for (int m = 0; m < modules; ++m) {
    linears.push_back({"m" + std::to_string(m) + ".a", 576, 64, {}});
    linears.push_back({"m" + std::to_string(m) + ".b", 96, 32, {}});
  }
  linears.push_back({"lm_head", 576, 64, uniform_groups(6, 128, 576)});
  return linears;
}

ReferenceMeasurement make_reference(int modules) {
  return reference_measurement_from_json(make_document(modules), make_linears(modules), "m.json");
}

TEST(ReferenceMeasurement, GroupsAreThoseOfTheReference) {
  EXPECT_TRUE(is_reference_measurement(make_document(1)));
  EXPECT_FALSE(is_reference_measurement({{"format", "bitloom-measurement-1"}}));
  const ReferenceMeasurement reference = make_reference(2);
  ASSERT_EQ(reference.modules.size(), 2u);
  // A share of 0.05 of 576 slots is rounded up to one group of 64.
  GroupList wanted = uniform_groups(3, 64, 64);
  for (const SlotGroup& group : uniform_groups(2, 64, 512)) wanted.push_back(group);
  EXPECT_EQ(reference.modules[0][0].groups.at("m0.a"), wanted);
  // The last group may be shorter.
  const GroupList& last = reference.modules[0][1].groups.at("m0.b");
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[1].slots, 32);
  // Bits are counted, not believed.
  EXPECT_EQ(reference.modules[0][4].bits, stored_bits(uniform_groups(8, 128, 576), 576, 64) +
                                              stored_bits(uniform_groups(8, 128, 96), 96, 32));
}

// The largest error of a module under a plan, by what the plan's groups cost.
double largest_error(const ReferenceMeasurement& reference, const BitPlan& plan) {
  std::map<std::string, GroupList> groups;
  for (const PlannedLinear& linear : plan.linears) groups[linear.key] = linear.groups;
  double largest = 0.0;
  for (const auto& options : reference.modules) {
    for (const ModuleOption& option : options) {
      const bool chosen =
          std::all_of(option.groups.begin(), option.groups.end(),
                      [&](const auto& l) { return groups.at(l.first) == l.second; });
      if (chosen) largest = std::max(largest, option.error);
    }
  }
  return largest;
}

// The smallest largest error of all choices within a budget.
double best_largest(const ReferenceMeasurement& reference, std::size_t module, double budget) {
  if (budget < 0) return 1e30;
  if (module == reference.modules.size()) return 0.0;
  double best = 1e30;
  for (const ModuleOption& option : reference.modules[module]) {
    best = std::min(
        best, std::max(option.error, best_largest(reference, module + 1,
                                                  budget - static_cast<double>(option.bits))));
  }
  return best;
}

TEST(ReferenceMeasurement, PlansKeepTheBudgetAndTheErrorsLow) {
  const ReferenceMeasurement reference = make_reference(5);
  const RateRange range = reachable_rates(reference);
  double last = 1e30;
  for (const double bits : {range.least, 3.0, 4.0, 5.0, 6.5, range.most}) {
    const BitPlan plan = plan_bits(reference, bits);
    EXPECT_EQ(plan.linears.size(), 10u);
    EXPECT_LE(plan.bits_per_weight, bits);
    EXPECT_TRUE(std::isnan(plan.predicted_kl));
    const double error = largest_error(reference, plan);
    const double best = best_largest(reference, 0, std::floor(bits * reference.weights));
    EXPECT_LE(error, last * (1 + 1e-9)) << bits;
    EXPECT_GE(error, best * (1 - 1e-9)) << bits;
    EXPECT_LE(error, 1.3 * best) << bits;
    last = error;
  }
  EXPECT_NEAR(plan_bits(reference, 8.9).bits_per_weight, range.most, 0.001);
  EXPECT_THROW(plan_bits(reference, range.least - 0.01), Error);
}

TEST(ReferenceMeasurement, RefusesDamageAndOtherModels) {
  const auto refusal = [](const Json& document, int modules = 1) -> std::string {
    try {
      reference_measurement_from_json(document, make_linears(modules), "m.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  const auto changed = [](const char* pointer, const Json& value) {
    Json document = make_document(1);
    document[Json::json_pointer(pointer)] = value;
    return document;
  };
  const std::pair<Json, std::string> cases[] = {
      {make_document(2), "has no m1.a"},
      {changed("/measurement/m0", Json::object()), "no options"},
      {changed("/measurement/m0", Json::array()), "no options"},
      {changed("/measurement/m0/1/accuracy", 1.5), "accuracy"},
      {changed("/measurement/m0/1/accuracy", "good"), "is not a measurement"},
      {changed("/measurement/m0/1/a", mix({7}, {1.0}, 64)), "7 bits"},
      {changed("/measurement/m0/1/a", mix({3, 4}, {0.5, 0.5}, 64)), "4 bits"},
      {changed("/measurement/m0/1/a/bits", Json::array()), "says nothing of 576 of 576"},
      {changed("/measurement/m0/1/a/group_size", {{"3", 40}}), "groups of 40"},
      {changed("/measurement/m0/1/a/group_size", {{"3", 0}}), "groups of 0"},
      {changed("/measurement/m0/1/a/bits_prop", {0.5}), "says nothing of 256 of 576"},
      {changed("/measurement/m0/1/a/bits_prop", {-1.0}), "share of -1"},
      {changed("/measurement/m0/1/a", nullptr), "different linears"},
  };
  for (const auto& [document, message] : cases) {
    EXPECT_NE(refusal(document).find(message), std::string::npos) << refusal(document);
  }
  EXPECT_NE(refusal(make_document(1), 2).find("knows 2 linears"), std::string::npos);
}

}  // namespace
}  // namespace bl::test
