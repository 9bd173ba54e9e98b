#include "backend/cuda/gemm/launch_plan.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace bl::cuda {
namespace {

std::string plan_text(int ring, int expanded, int library) {
  return fmt::format(R"({{"skinny_from": 3, "skinny_smem_from": {}, "small_skinny_smem_from": 3,)"
                     R"( "large_from": {}, "wgmma_from": 129, "dense_library_from": {}}})",
                     ring, expanded, library);
}

TEST(LaunchPlan, IsReadAsItIsWritten) {
  const LaunchPlan plan = parse_launch_plan(plan_text(17, 49, 8), "a plan");
  EXPECT_EQ(plan.skinny_from, 3);
  EXPECT_EQ(plan.small_skinny_smem_from, 3);
  EXPECT_EQ(plan.skinny_smem_from, 17);
  EXPECT_EQ(plan.large_from, 49);
  EXPECT_EQ(plan.wgmma_from, 129);
  EXPECT_EQ(plan.dense_library_from, 8);
}

TEST(LaunchPlan, WhatIsNoPlanIsRefused) {
  const char* const bad[] = {
      "", "[]", "{}", R"({"skinny_smem_from": 25, "large_from": 65})",
      R"({"skinny_smem_from": "25", "large_from": 65, "dense_library_from": 9})"};
  for (const char* text : bad) EXPECT_THROW(parse_launch_plan(text, "a plan"), Error) << text;
  EXPECT_THROW(parse_launch_plan(plan_text(1, 65, 9), "a plan"), Error);
  EXPECT_THROW(parse_launch_plan(plan_text(25, 16, 9), "a plan"), Error);
  EXPECT_THROW(parse_launch_plan(plan_text(25, 66, 9), "a plan"), Error);
  std::string more = plan_text(25, 65, 9);
  more.insert(1, R"("speed": 1, )");
  EXPECT_THROW(parse_launch_plan(more, "a plan"), Error);
}

TEST(LaunchPlan, ACardTakesThatOfItsOwnCapabilityOrTheNextBelow) {
  const std::string old = plan_text(2, 40, 9);
  const std::string hopper = plan_text(25, 65, 9);
  const EmbeddedDocument plans[] = {
      {"cc90", hopper}, {"cc75", old}, {"cc9", "broken"}, {"README", "no plan"}};
  EXPECT_EQ(find_launch_plan(plans, 90).skinny_smem_from, 25);
  EXPECT_EQ(find_launch_plan(plans, 120).skinny_smem_from, 25);
  EXPECT_EQ(find_launch_plan(plans, 89).large_from, 40);
  EXPECT_EQ(find_launch_plan(plans, 75).large_from, 40);
  EXPECT_EQ(find_launch_plan({}, 90).large_from, LaunchPlan().large_from);
}

// Large GEMMs begin at large_from, or at wgmma_from if that is earlier and the card has wgmma.
TEST(LaunchPlan, RowsAreManyFromTheEarlierOfTwo) {
  LaunchPlan plan;
  plan.large_from = 49;
  plan.wgmma_from = 17;
  EXPECT_EQ(plan.large_or_wgmma_from(true), 17);
  EXPECT_EQ(plan.large_or_wgmma_from(false), 49);
  plan.wgmma_from = LaunchPlan::kNeverWgmma;
  EXPECT_EQ(plan.large_or_wgmma_from(true), 49);
}

TEST(LaunchPlan, ChoicesAreItsMembers) {
  LaunchPlan plan;
  set_choice(plan, "large_from", 40);
  EXPECT_EQ(plan.large_from, 40);
  EXPECT_THROW(set_choice(plan, "large_from", 66), Error);
  EXPECT_THROW(set_choice(plan, "expanded", 40), Error);
  bool found = false;
  for (const LaunchChoice& choice : choices_of(plan)) {
    EXPECT_LE(choice.least, choice.from);
    EXPECT_LE(choice.from, choice.most);
    found = found || (choice.name == "large_from" && choice.from == 40);
  }
  EXPECT_TRUE(found);
}

TEST(BestSwitch, LosesLeast) {
  const WayTimes never[] = {{9, 1, 2}, {17, 1, 1.5}};
  EXPECT_EQ(best_switch(never, 65), 65);
  const WayTimes always[] = {{9, 2, 1}, {17, 3, 1}};
  EXPECT_EQ(best_switch(always, 65), 9);
  const WayTimes cross[] = {{9, 1, 2}, {17, 1, 1.2}, {25, 1.3, 1.2}, {33, 2, 1.4}};
  EXPECT_EQ(best_switch(cross, 65), 25);
  // A single disturbed measurement does not decide.
  const WayTimes noisy[] = {{9, 1, 2}, {17, 1.1, 1.09}, {25, 1, 1.6}, {33, 2, 1.4}, {41, 2, 1.4}};
  EXPECT_EQ(best_switch(noisy, 65), 33);
  EXPECT_EQ(best_switch({}, 65), 65);
}

// Every shipped plan parses, every compute capability has a plan, and those that were measured or
// reasoned about have their own.
TEST(LaunchPlan, ShippedPlansAreRight) {
  const auto folder = std::filesystem::path(BL_LAUNCH_PLANS);
  for (const char* name : {"cc75", "cc80", "cc86", "cc89", "cc90", "cc100", "cc120"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / (std::string(name) + ".json"))) << name;
  }
  int lowest = 1000;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    ASSERT_EQ(entry.path().extension(), ".json");
    parse_launch_plan(read_file(entry.path()), name);
    lowest = std::min(lowest, std::stoi(name.substr(2)));
  }
  EXPECT_LE(lowest, 75);
}

}  // namespace
}  // namespace bl::cuda
