#include "server/model_room.h"

#include <gtest/gtest.h>

namespace bl::server {
namespace {

using std::chrono::seconds;

Resident resident(std::uint64_t bytes, int used) {
  return {.memory = {bytes, 0}, .last_used = std::chrono::steady_clock::time_point(seconds(used))};
}

TEST(ModelRoom, NothingGoesWhereItFits) {
  const Resident all[] = {resident(4, 1), resident(4, 2)};
  EXPECT_TRUE(plan_room(all, {2, 0}, {10, 0}).leaving.empty());
  EXPECT_TRUE(plan_room(all, {100, 0}, {0, 0}).leaving.empty());  // no bound
}

TEST(ModelRoom, TheLeastRecentlyUsedGoesFirst) {
  const Resident all[] = {resident(4, 3), resident(4, 1), resident(4, 2)};
  EXPECT_EQ(plan_room(all, {4, 0}, {12, 0}).leaving, (std::vector<std::size_t>{1}));
  EXPECT_EQ(plan_room(all, {8, 0}, {12, 0}).leaving, (std::vector<std::size_t>{1, 2}));
}

TEST(ModelRoom, IdleModelsGoBeforeThoseInUse) {
  Resident all[] = {resident(4, 1), resident(4, 2)};
  all[0].in_use = true;
  EXPECT_EQ(plan_room(all, {4, 0}, {8, 0}).leaving, (std::vector<std::size_t>{1}));
  EXPECT_EQ(plan_room(all, {8, 0}, {8, 0}).leaving, (std::vector<std::size_t>{1, 0}));
}

TEST(ModelRoom, PinnedModelsStay) {
  Resident all[] = {resident(4, 1), resident(4, 2)};
  all[0].stays = true;
  EXPECT_EQ(plan_room(all, {4, 0}, {8, 0}).leaving, (std::vector<std::size_t>{1}));
  const RoomPlan plan = plan_room(all, {5, 0}, {8, 0});
  EXPECT_FALSE(plan.possible);
  EXPECT_TRUE(plan.leaving.empty());
}

TEST(ModelRoom, BothKindsOfMemoryHaveToDo) {
  const Resident all[] = {{.memory = {1, 8}, .last_used = {}}};
  EXPECT_EQ(plan_room(all, {1, 4}, {10, 10}).leaving.size(), 1u);
  EXPECT_TRUE(plan_room(all, {1, 2}, {10, 10}).leaving.empty());
}

}  // namespace
}  // namespace bl::server
