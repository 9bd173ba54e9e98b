#include "launch_tuning.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace bl {
namespace {

// A plan's reader refuses missing members: what a card has one way for is written as it was, and
// nobody is shown a table of nothing.
TEST(LaunchTuning, WhatHasOneWayIsWrittenAsItWas) {
  TunedChoice measured{{"skinny_smem_from", 25, 9, 33}, 0, {{9, 2.0, 1.0}, {17, 2.0, 1.0}}};
  measured.best = best_switch(measured.times, measured.was.most);
  TunedChoice fixed{{"wgmma_from", 193, 193, 193}, 0, {}};
  fixed.best = best_switch(fixed.times, fixed.was.most);
  const std::vector<TunedChoice> choices{measured, fixed};
  EXPECT_EQ(launch_plan_json(choices), Json({{"skinny_smem_from", 9}, {"wgmma_from", 193}}));
  const std::string table = tuning_table(choices);
  EXPECT_NE(table.find("skinny_smem_from: 9 (was 25)"), std::string::npos) << table;
  EXPECT_EQ(table.find("wgmma_from"), std::string::npos) << table;
}

}  // namespace
}  // namespace bl
