#include "ops/op_profile.h"

#include <gtest/gtest.h>

namespace bl::test {
namespace {

TEST(OpProfile, SumsByOpAndClassOfShapes) {
  OpProfile profile;
  const auto matmul = [](std::int64_t tokens, std::int64_t out) {
    return OpCall{"matmul", {.tokens = tokens, .in = 64, .out = out}};
  };
  profile.add(matmul(5, 128), 0.5);
  profile.add(matmul(8, 128), 0.25);
  profile.add(matmul(9, 128), 0.125);
  profile.add(matmul(8, 96), 2);
  profile.add({"attention", {.tokens = 1, .in = 64, .out = 64, .keys = 1000}}, 0.25);
  profile.add({"attention", {.tokens = 1, .in = 64, .out = 64, .keys = 1024}}, 0.25);
  profile.add({"attention", {.tokens = 1, .in = 64, .out = 64, .keys = 1025}}, 0.0625);

  const std::vector<OpTime> times = profile.times();
  ASSERT_EQ(times.size(), 5u);
  const auto expect = [&](std::size_t i, std::string_view text, std::int64_t calls, double s) {
    EXPECT_EQ(std::string(times[i].op) + " " + to_text(times[i].shape), text);
    EXPECT_EQ(times[i].calls, calls) << text;
    EXPECT_EQ(times[i].seconds, s) << text;
  };
  expect(0, "matmul 8 x 64 -> 96", 1, 2);
  expect(1, "matmul 8 x 64 -> 128", 2, 0.75);
  expect(2, "attention 1 x 64 -> 64, 1024 keys", 2, 0.5);
  expect(3, "matmul 16 x 64 -> 128", 1, 0.125);
  expect(4, "attention 1 x 64 -> 64, 2048 keys", 1, 0.0625);
  EXPECT_EQ(profile.seconds(), 3.4375);
}

TEST(OpProfile, LeavesOutSizesThatAnOpLacks) {
  EXPECT_EQ(to_text(OpShape{.tokens = 3, .out = 64}), "3 -> 64");
  EXPECT_EQ(to_text(OpShape{.tokens = 3, .in = 64}), "3 x 64");
  EXPECT_EQ(shape_class({}), OpShape{});
}

TEST(OpProfile, IsATable) {
  OpProfile profile;
  profile.add({"norm", {.tokens = 1, .in = 4096, .out = 4096}}, 0.005);
  for (int i = 0; i < 12; ++i) {
    profile.add({"matmul", {.tokens = 1, .in = 4096, .out = 28672}}, 0.01);
  }
  EXPECT_EQ(
      to_text(profile, 0.2),
      "op                 tokens x in -> out                     calls    total ms    share\n"
      "matmul             1 x 4096 -> 28672                         12     120.000   60.0 %\n"
      "norm               1 x 4096 -> 4096                           1       5.000    2.5 %\n"
      "outside ops                                                          75.000   37.5 %\n"
      "all                                                                 200.000  100.0 %\n");
}

TEST(OpProfile, OfNothingHasNoShares) {
  EXPECT_EQ(
      to_text(OpProfile(), 0),
      "op                 tokens x in -> out                     calls    total ms    share\n"
      "outside ops                                                           0.000    0.0 %\n"
      "all                                                                   0.000    0.0 %\n");
}

TEST(HostOpTimer, AddsWhatPassesBetween) {
  OpProfile profile;
  double now = 10;
  HostOpTimer timer(profile, [&] { return now; });
  ExecContext ctx;
  const OpCall call{"add", {.tokens = 2, .in = 8, .out = 8}};
  timer.before(ctx, call);
  now = 12;
  timer.after(ctx, call);
  now = 20;  // between ops
  timer.before(ctx, call);
  now = 21;
  timer.after(ctx, call);
  ASSERT_EQ(profile.times().size(), 1u);
  EXPECT_EQ(profile.times()[0].calls, 2);
  EXPECT_EQ(profile.seconds(), 3);
}

TEST(HostOpTimer, HasAClockThatGoes) {
  OpProfile profile;
  HostOpTimer timer(profile);
  ExecContext ctx;
  const OpCall call{"add", {}};
  for (int i = 0; i < 1000; ++i) {
    timer.before(ctx, call);
    timer.after(ctx, call);
  }
  EXPECT_GT(profile.seconds(), 0);
  EXPECT_LT(profile.seconds(), 60);
}

}  // namespace
}  // namespace bl::test
